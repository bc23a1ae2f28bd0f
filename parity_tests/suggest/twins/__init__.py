"""The same networks in Keras, as somebody would write them who reads the PyTorch code. No torch here."""
