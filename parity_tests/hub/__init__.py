"""Released PyTorch models and the models of KerasHub and ``keras.applications`` that correspond to them."""
