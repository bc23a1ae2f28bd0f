"""UNet2DModel of diffusers: a U-Net for images, as denoising diffusion uses it. See docs/unet2d.md."""
