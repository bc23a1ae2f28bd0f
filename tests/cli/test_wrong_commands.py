"""Commands as a new user mistypes them: each ends at once with one line and its code, and changes nothing.

The line says where, what and what to do. ``-NAME`` before a command takes that package away.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.bad.run import snapshot
from tests.cli.wrong_files import lay_out
from tests.command import Cli
from wdport.base.limits import MAX_MESSAGE_CHARS

WRONG: list[tuple[str, int, str]] = [
    ("transform good.ckpt", 2, "wdport: no verb 'transform'; wdport --help lists them"),
    ("insepct good.ckpt", 2, "wdport: no verb 'insepct'; did you mean inspect?"),
    ("good.ckpt", 2, "wdport: no verb 'good.ckpt'; the verb comes first, such as wdport convert FILE"),
    ("help", 2, "wdport: no verb 'help'; did you mean --help?"),
    ("version", 2, "wdport: no verb 'version'; did you mean --version?"),
    ("--json inspect good.ckpt", 2, "wdport: no option --json; options follow the verb: wdport VERB ... --json"),
    ("--vresion", 2, "wdport: no option --vresion; did you mean --version?"),
    ('convert good.ckpt --config ""', 2, "--config: is empty; give a file"),
    ('convert good.ckpt -o ""', 2, "--output: is empty; give a file"),
    ('convert ""', 2, "CHECKPOINT: is empty; give a file"),
    ('verify good.ckpt good.keras --repro ""', 2, "--repro: is empty; give a folder"),
    ('sample good.keras --label ""', 2, "--label: is empty; give a value"),
    ("inspect /", 3, "/: is a directory without a checkpoint; give the path of a checkpoint file"),
    ("verify good.ckpt /", 3,
     "/: is not a converted model; give a file that ends in .keras, .safetensors, .weights.h5, .npz"),
    ("map diff . good.keras", 2, "good.keras: is a converted file, and . a checkpoint; give two files of one kind"),
    ("map diff missing good.keras", 3, "missing: no such file; check the path"),
    ("record a:b ./", 3, ".: is a directory; give a checkpoint file"),
    ("sample good.keras --sampler DDIM", 2, "--sampler: unknown name 'DDIM'; did you mean ddim?"),
    ("sample good.keras --sampler dddim", 2, "--sampler: unknown name 'dddim'; did you mean ddim?"),
    ("convert good.ckpt --dtype fp16", 2, "--dtype: unknown name 'fp16'; did you mean float16?"),
    ("convert -dash.ckpt", 2, "wdport convert: no option -dash.ckpt; write ./-dash.ckpt for the file of this name"),
    ("map check missing", 3, "missing: no such file; give the path of a mapping table"),
    ("verify good.ckpt good.keras --policy missing", 3, "missing: no such file; give the policy file"),
    ("map chek own.yaml", 2, "wdport map: no verb 'chek'; did you mean check?"),
    ("convert", 2, "wdport convert: CHECKPOINT is missing; see wdport convert --help"),
    ("convert missing.ckpt", 3, "missing.ckpt: no such file; check the path"),
    ("convert folder", 3, "folder: is a directory without a checkpoint; give the path of a checkpoint file"),
    ("convert photo.png", 3,
     "photo.png: is neither a PyTorch nor a safetensors file; give a PyTorch checkpoint or a safetensors file"),
    ("convert notes.txt", 3,
     "notes.txt: is a text file, not a checkpoint; give a PyTorch checkpoint or a safetensors file"),
    ("convert data.h5", 3,
     "data.h5: is an HDF5 file (Keras weights?), not a PyTorch checkpoint; give the PyTorch checkpoint"),
    ("convert -", 2, "-: standard input and output are not used for this; give the name of a file"),
    ("convert good.keras", 3,
     "good.keras: is a Keras model, not a PyTorch checkpoint; give the checkpoint; wdport inspect shows what is in "
     "this file"),
    ("convert good.stablehlo -o out.keras", 3,
     "good.stablehlo: is a program that wdport export wrote; give the checkpoint or the converted model"),
    ("convert pytorch_model.bin", 4,
     "pytorch_model.bin: no mapping table fits its 4 tensors; make one for your own model with wdport map suggest "
     "(docs/own-model.md), and give it with --mapping FILE"),
    ("convert other.safetensors -o out.keras", 4,
     "other.safetensors: no mapping table fits its 1 tensor; make one for your own model with wdport map suggest "
     "(docs/own-model.md), and give it with --mapping FILE"),
    ("convert my model.ckpt", 2,
     "wdport convert: unexpected argument 'model.ckpt'; quote a name with spaces: 'my model.ckpt'"),
    ("convert good.ckpt", 2, "good.keras: exists already; give another name with -o, or --force to replace it"),
    ("convert good.ckpt --mapping missing.yaml", 3, "missing.yaml: no such file; check the path"),
    ("convert good.ckpt --fast", 2, "wdport convert: no option --fast; see wdport convert --help"),
    ("convert good.ckpt --stict", 2, "wdport convert: no option --stict; did you mean --strict?"),
    ("convert good.ckpt -config typo.yaml", 2, "wdport convert: no option -config; did you mean --config?"),
    ("convert good.ckpt –config typo.yaml", 2, "wdport convert: no option –config; did you mean --config?"),
    ("convert good.ckpt -o out.onnx", 2,
     "out.onnx: unknown output format; end the name in .keras, .safetensors, .weights.h5, .npz or .orbax, or in / "
     "for a folder of shards"),
    ("convert good.ckpt -o nowhere/out.keras", 2,
     "nowhere/out.keras: its folder does not exist; create the folder first"),
    ("convert good.ckpt -o out.keras --dtype float64", 2,
     "--dtype: unknown name 'float64'; use one of float32, bfloat16, float16"),
    ("convert good.ckpt -o out.keras --config missing.yaml", 3,
     "missing.yaml: no such file; give the training configuration"),
    ("convert good.ckpt -o out.keras --config nomodel.yaml", 4,
     "nomodel.yaml: holds no setting of a WaveletDiff model: it has no `model:` section, only training; give the "
     "training configuration, with its `model:` section, or --set NAME=VALUE"),
    ("convert good.ckpt -o out.keras --config typo.yaml", 4,
     "typo.yaml: model.num_head: no such setting; did you mean model.num_heads?"),
    ("convert good.ckpt -o out.keras --config flat.yaml", 4,
     "flat.yaml: num_heads: no such setting; move it to its section, as model.num_heads"),
    ("convert good.ckpt -o out.keras --config broken.yaml", 3,
     "broken.yaml: line 2: not valid YAML (did not find expected ',' or ']'); correct the syntax"),
    ("convert good.ckpt -o out.keras --config good.ckpt", 3, "good.ckpt: is a binary file, not YAML; give a text file"),
    ("convert good.ckpt -o out.keras --set num_head=2", 2, "--set: unknown name 'num_head'; did you mean num_heads?"),
    ("convert good.ckpt -o out.keras --set num_heads 2", 2,
     "wdport convert: unexpected argument '2'; see wdport convert --help"),
    ("convert good.ckpt -o out.keras --set num_heads=two", 2, "--set num_heads: 'two' is not a number; give a number"),
    ("convert good.ckpt -o out.keras --set num_heads=3", 4,
     "good.ckpt: num_heads 3 does not divide embed_dim 16; give the right value with --config FILE or --set "
     "NAME=VALUE"),
    ("convert good.ckpt -o out.keras --set num_heads", 2,
     "--set: 'num_heads' is not KEY=VALUE; write for example --set num_heads=8"),
    ("convert good.ckpt -o out.keras --set num_heads=2 --set num_heads=4", 2,
     "--set: num_heads is given twice; give it once"),
    ("convert good.ckpt -o out.keras --strict", 4,
     "good.ckpt: --strict rejects assumed values (num_heads=8, prediction_target=noise, dropout=0.1, "
     "boundary_mode=symmetric, wavelet=db2, seq_len=24); give them with --config FILE or --set NAME=VALUE, or leave "
     "out --strict"),
    ("convert good.ckpt -o out.keras --mapping missing.yaml", 3,
     "missing.yaml: no such file; give the path of a mapping table"),
    ("convert good.ckpt -o out.keras --mapping own.yaml", 4,
     "own.yaml: is for another model: it names none of the 165 tensors in good.ckpt; give this model's table"),
    ("convert good.ckpt -o out.keras --mapping nomodel.yaml", 4,
     "nomodel.yaml: line 1: has no `format`: not a mapping table; give a mapping table, see docs/mapping.md"),
    ("convert good.ckpt -o out.keras --mapping tabel.yaml", 4,
     "tabel.yaml: line 2: unknown field 'layerz'; did you mean layers?"),
    ("convert good.ckpt -o out.keras --key model", 3,
     "good.ckpt: key 'model' holds no state_dict; tensors are under state_dict; choose one with --key NAME"),
    ("convert good.ckpt -o out.keras --sha256 abc", 2,
     "--sha256: invalid SHA-256 'abc'; give its 64 hexadecimal digits"),
    ("convert good.ckpt -o out.keras --json notes.txt", 2,
     "notes.txt: exists already and is not JSON of wdport; give another name with --json"),
    ("verify", 2, "wdport verify: CHECKPOINT and CONVERTED are missing; see wdport verify --help"),
    ("verify good.ckpt", 2, "wdport verify: CONVERTED is missing; give both, or CONVERTED and --against RECORDING"),
    ("verify good.ckpt good.keras other.keras", 2,
     "wdport verify: unexpected argument 'other.keras'; give CHECKPOINT and CONVERTED"),
    ("verify good.keras good.ckpt", 2,
     "wdport verify: swapped? good.keras is a converted model; give CHECKPOINT first: wdport verify good.ckpt "
     "good.keras"),
    ("verify good.ckpt good.ckpt", 3,
     "good.ckpt: is not a converted model; convert it first (wdport convert, wdport.convert)"),
    ("verify good.ckpt missing.keras", 3, "missing.keras: no such file; check the path"),
    ("verify good.ckpt other.keras", 4,
     "other.keras: is a Keras model (Functional) that wdport did not write; give its table to the verbs "
     "with --mapping, or load it with keras.saving.load_model"),
    ("verify good.ckpt nameless.keras", 4,
     "nameless.keras: is a Keras model that wdport did not write; give its table to the verbs "
     "with --mapping, or load it with keras.saving.load_model"),
    ("verify good.ckpt other.weights.h5", 3,
     "other.weights.h5: has no wdport manifest: it is Keras weights, or another HDF5 file; give the file that wdport "
     "convert wrote"),
    ("verify good.ckpt other.safetensors", 3,
     "other.safetensors: has no wdport manifest: it is a checkpoint, or other tensors; give the file that wdport "
     "convert wrote"),
    ("verify good.keras absent.stablehlo", 3, "absent.stablehlo: no such file; check the path"),
    ("verify good.ckpt good.stablehlo", 3,
     "good.ckpt: is not a converted model; convert it first (wdport convert, wdport.convert)"),
    ("verify good.ckpt data.h5", 3,
     "data.h5: is not a converted model; give a file that ends in .keras, .safetensors, .weights.h5, .npz"),
    ("verify good.ckpt good.keras --policy policy.toml", 3,
     "policy.toml: bound: is an unknown key; did you mean bounds?"),
    ("verify good.ckpt good.keras --update-baseline", 2,
     "--update-baseline: needs a baseline; name it with --baseline FILE"),
    ("verify good.ckpt good.keras --json good.ckpt", 2,
     "good.ckpt: is an input (checkpoint); give another name with --json"),
    ("verify good.ckpt good.keras --steps 50", 2, "wdport verify: no option --steps; see wdport verify --help"),
    ("verify good.ckpt good.keras --rtol 1e-3", 2,
     "wdport verify: no option --rtol; a policy file sets the bounds: give --policy FILE, see docs/formats/policy.md"),
    ("verify good.ckpt good.keras --html report.pdf", 2,
     "report.pdf: --html writes another kind of file; name it report.html"),
    ("verify good.ckpt good.keras --json report.xml", 2,
     "report.xml: --json writes another kind of file; name it report.json"),
    ("map outline --reference tests.user_model:small --input 3,32,32", 2,
     "--input: '3,32,32' is not NAME: AXES, such as 'x: b 3 32 32'; see docs/inputs.md"),
    ("map outline --reference tests.user_model:small --input (1,3,32,32)", 2,
     "--input: '(1,3,32,32)' is not NAME: AXES, such as 'x: b 3 32 32'; see docs/inputs.md"),
    ("verify good.ckpt good.keras --reference mymodel:build", 2,
     "mymodel:build: no module named mymodel; run in your project's folder and environment"),
    ("verify good.ckpt good.keras --against run.npz", 2,
     "--against: the recording replaces CHECKPOINT; give only CONVERTED"),
    ("verify good.keras --against missing.npz", 3, "missing.npz: no such file; check the path"),
    ("record good.ckpt", 2,
     "wdport record: MODULE:FUNCTION or CHECKPOINT is missing; give MODULE:FUNCTION and CHECKPOINT, or add --mapping "
     "FILE"),
    ("record good.ckpt mymodel:build", 2,
     "wdport record: swapped? good.ckpt is a file; give MODULE:FUNCTION first: wdport record mymodel:build good.ckpt"),
    ("record tests.user_model good.ckpt", 2,
     "tests.user_model: is not MODULE:FUNCTION; write tests.user_model:NAME, with the name of the function that builds "
     "the model"),
    ("record ./tests/user_model.py:small good.ckpt", 2,
     "./tests/user_model.py:small: is not MODULE:FUNCTION; write tests.user_model:small"),
    ("record tests.nowhere:build good.ckpt", 2,
     "tests.nowhere:build: no module named tests.nowhere; run in your project's folder and environment"),
    ("record tests.user_model:small missing.ckpt", 3, "missing.ckpt: no such file; check the path"),
    ("record tests.user_model:other good.ckpt -o out.npz", 4,
     "good.ckpt: lacks level_transformers.0.blocks.3.attn.in_proj_bias and 47 more, which the module has; give the "
     "factory of this checkpoint"),
    ("record tests.user_model:small good.ckpt -o nowhere/run.npz", 2,
     "nowhere/run.npz: its folder does not exist; create the folder first"),
    ("record tests.user_model:small good.ckpt -o run.txt", 2, "run.txt: unknown output format; end the name in .npz"),
    ("sample good.ckpt", 3, "good.ckpt: is not a converted model; convert it first (wdport convert, wdport.convert)"),
    ("sample good.stablehlo", 3,
     "good.stablehlo: is an exported program, not a converted model; give the converted model that it was exported "
     "from; wdport/uses/exporting/loader.py runs this file"),
    ("sample good.keras --steps 0", 2, "--steps: ddpm takes all 1000 steps, not 0; leave it out, or use ddim"),
    ("sample good.keras --sampler ddmi", 2,
     "--sampler: unknown name 'ddmi'; use one of ddpm, ddim, ddim-textbook, euler, "
     "euler-ancestral, heun, dpm++2m, dpm++2m-sde, unipc, probability-flow, rk4, predictor-corrector, consistency"),
    ("sample good.keras --sampler ddim --steps 0", 2,
     "--steps: invalid value 0; give a whole number from 1 to 1000"),
    ("sample good.keras --steps many", 2, "--steps: 'many' is not a valid integer; see wdport sample --help"),
    ("sample good.keras -n 0", 2, "--count: invalid value '0'; give a whole number from 1 to 4294967296"),
    ("sample good.keras --seed -1", 2, "--seed: invalid value -1; give a whole number from 0 to 4294967295"),
    ("sample good.keras -o out.txt", 2, "out.txt: unknown output format; end the name in .npz, .npy, .csv, .parquet"),
    ("sample good.keras -o good.keras", 2,
     "good.keras: unknown output format; end the name in .npz, .npy, .csv, .parquet"),
    ("sample good.keras --devices 99", 2, '--devices: 99 devices asked for, 1 found; give fewer, or "all"'),
    ("sample good.keras --label 3", 2, "--label: the model has no classes; leave it out"),
    ("sample missing.keras", 3, "missing.keras: no such file; check the path"),
    ("sample good.keras --chunk many", 2,
     "--chunk: invalid value 'many'; give a whole number from 1, or auto"),
    ("sample good.keras --batch-size 0", 2,
     "--batch-size: invalid value '0'; give a whole number from 1, or auto"),
    ("sample good.keras --shard-weights", 2, "--shard-weights: needs several devices; add --devices all"),
    ("sample good.keras --known missing.csv", 3, "missing.csv: no such file; check the path"),
    ("sample good.keras --resample 3", 2, "--resample: has no effect without known values; leave it out, or give them"),
    ("sample good.keras --plot a.gif", 2, "a.gif: unknown figure format; end the name in .png, .svg, .pdf"),
    ("generate good.keras --text a", 2,
     "good.keras: a waveletdiff model generates no text; give a converted masked language model; wdport.load_model "
     "runs this one"),
    ("decode good.keras good.npy", 2,
     "good.keras: a waveletdiff model encodes and decodes no videos; give a converted autoencoder; wdport.load_model "
     "runs this one"),
    ("export missing.keras", 3, "missing.keras: no such file; check the path"),
    ("export good.keras -o a.onnx", 2, "a.onnx: unknown output format; end the name in .stablehlo"),
    ("export good.keras -o nowhere/a.stablehlo", 2,
     "nowhere/a.stablehlo: its folder does not exist; create the folder first"),
    ("export good.keras --platforms , -o out.stablehlo", 2,
     "--platforms: unknown platform ''; give some of cpu, cuda, rocm, tpu"),
    ("export good.keras --what all -o out.stablehlo", 2,
     "--what: unknown name 'all'; use one of denoiser, sampler, network"),
    ("export good.keras --steps 5 -o out.stablehlo", 2,
     "--steps: requires --what sampler; leave it out, or add --what sampler"),
    ("export good.keras --what sampler --sampler plms -o out.stablehlo", 2,
     "--sampler: unknown name 'plms'; use one of ddpm, ddim, ddim-textbook, euler, "
     "euler-ancestral, heun, dpm++2m, dpm++2m-sde, unipc, probability-flow, rk4, predictor-corrector, consistency"),
    ("export good.keras --batch-size 0 -o out.stablehlo", 2,
     "--batch-size: invalid value '0'; give a whole number from 1 to 16777216"),
    ("export good.keras --what sampler --to torch", 2,
     "--what: requires --to stablehlo; --to torch writes tensors; leave it out"),
    ("export good.keras --platforms gpu -o out.stablehlo", 2,
     "--platforms: unknown platform 'gpu'; give some of cpu, cuda, rocm, tpu"),
    ("map explain good.keras level_0/input_proj/kernel", 2,
     "wdport map explain: swapped? good.keras is a file; give the tensor's name first: wdport map explain "
     "level_0/input_proj/kernel good.keras"),
    ("map explain level_0/input_proj/kernl good.keras", 2,
     "good.keras: level_0/input_proj/kernl: no tensor or variable of that name; did you mean "
     "level_0/input_proj/kernel or level_3/input_proj/kernel or level_2/input_proj/kernel?"),
    ("map check good.ckpt", 3, "good.ckpt: is a binary file, not YAML; give a text file"),
    ("map check", 2, "wdport map check: TABLE is missing; see wdport map check --help"),
    ("map check tabel.yaml", 4, "tabel.yaml: line 2: unknown field 'layerz'; did you mean layers?"),
    ("map outline", 2, "wdport map outline: no model is named; give --reference MODULE:FUNCTION, or --mapping FILE"),
    ("map suggest", 2, "--keras-model: is missing; name the function of the Keras model, as MODULE:FUNCTION"),
    ("inspect good.keras.wdport.json", 3,
     "good.keras.wdport.json: is the manifest of a converted model; give the model itself: good.keras"),
    ("inspect missing.keras", 3, "missing.keras: no such file; check the path"),
    ("inspect good.ckpt -q -v", 2, "--verbose: --quiet is given as well; give one of them"),
    ("selftest --family unet", 2,
     "--family: 'unet' has no known faults; use one of waveletdiff, unet2d, masked_lm, wan_vae"),
    ("selftest --quick --family unet2d", 2,
     "--family: --quick has faults of only one family; leave one of them out"),
    ("-torch verify good.ckpt good.keras", 5,
     "wdport verify: the PyTorch model runs in torch, which is not installed; pip install 'wdport[torch]', or use a "
     "recording: wdport verify CONVERTED --against FILE"),
    ("-torch record mymodel:build good.ckpt", 5,
     "wdport record: the PyTorch model runs in torch, which is not installed; pip install 'wdport[torch]'"),
    ("-torch selftest --quick", 5,
     "wdport selftest: the PyTorch model runs in torch, which is not installed; pip install 'wdport[torch]'"),
    ("-torch map outline --reference mymodel:build", 5,
     "wdport map outline: the PyTorch model runs in torch, which is not installed; pip install 'wdport[torch]'"),
    ("-torch map suggest --reference mymodel:build --keras-model mymodel:keras", 5,
     "wdport map suggest: the PyTorch model runs in torch, which is not installed; pip install 'wdport[torch]'"),
    ("-matplotlib sample good.keras --plot out.png", 5,
     "out.png: writing it needs matplotlib, which is not installed; install wdport[figures]"),
    ("-pyarrow sample good.keras -o out.parquet", 5,
     "out.parquet: writing it needs pyarrow, which is not installed; install wdport[parquet]"),
    ("-flatbuffers export good.keras -o out.stablehlo", 5,
     "out.stablehlo: writing it needs flatbuffers, which is not installed; install wdport[export]"),
    ("-torch export good.keras --to torch -o out.pt", 5,
     "out.pt: writing it needs torch, which is not installed; install wdport[torch]"),
]  # fmt: skip


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    lay_out(folder)
    return folder


def test_the_table_is_broad() -> None:
    """Forty commands at least, every verb, and every code that a wrong command can have."""
    assert len(WRONG) >= 40
    verbs = {word for words, _, _ in WRONG for word in words.split()[:2]}
    assert verbs >= {"convert", "verify", "record", "sample", "export", "inspect", "map", "selftest"}
    assert {code for _, code, _ in WRONG} == {2, 3, 4, 5}


@pytest.mark.parametrize(("words", "code", "line"), WRONG, ids=[words for words, _, _ in WRONG])
def test_a_wrong_command(
    ready: Path, words: str, code: int, line: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(ready)
    rest = shlex.split(words)
    if words[0] == "-" and words[1] != "-":
        monkeypatch.setitem(sys.modules, rest.pop(0)[1:], None)
    before = snapshot(ready)
    shown = cli(*rest, code=code)
    assert shown.err == f"error: {line}\n"
    assert shown.out == ""
    assert len(line) <= MAX_MESSAGE_CHARS + 60  # a path is never shortened
    assert snapshot(ready) == before
