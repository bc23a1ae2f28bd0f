"""UNet2DModel of diffusers: a U-Net for images, as used in denoising diffusion. See docs/unet2d.md."""
