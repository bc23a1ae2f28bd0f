"""AutoencoderKLWan of diffusers: the video autoencoder of Wan 2.1 and 2.2. See docs/wan_vae.md."""
