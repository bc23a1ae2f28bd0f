"""Record a PyTorch model with its checkpoint to one NPZ file, with which wdport compares a port without torch.

This folder needs only Python 3.8, numpy and torch 1.13, or later, and no other part of wdport. Copy it into your
project:

    python -m recording package.module:factory checkpoint.ckpt -o run.npz

If ``factory`` requires one argument, it is called with the checkpoint's path and returns the module with its
weights loaded; otherwise it is called without arguments and the weights are loaded here. It returns the module, or the
module and ``make_inputs(seed, batch, scale)``, which returns a tuple of float64 arrays with the batch on axis 0;
``--input 'x: b 3 48 48'``, once for every input, replaces such a function.

The file holds arrays ``N.npy``, without duplicates, and ``index.npy``, UTF-8 JSON. The index refers to array N as
``"N"``; as ``"N:s"``, rounded to float32; as ``"N:d"``, rounded to float32 and converted back to float64; or as
``"N:p"``, ``"N:ps"`` and ``"N:pd"``, the same of its positive values, with zeros in place of all others, as of a ReLU.
"""
