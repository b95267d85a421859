"""What the name of a file or folder says about a saved state: its role, its number, its rank.

Tables of words, as frameworks and people use them. Nothing here looks at a disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Roles. A training goes on from LAST, LEFT or STATE; PREVIOUS is the same, one save earlier.
LAST = "last"  # by its name the newest: last.pt, checkpoint_latest.pth
LEFT = "left"  # saved on leaving: hpc_ckpt_1.ckpt, interrupted.pt
STATE = "state"  # any other: epoch_3.pt, checkpoint-500, state.json
PREVIOUS = "previous"  # last.pt.bak
DOUBTFUL = "doubtful"  # may be a state, if nothing else is: dataset.pkl, params.txt, x.safetensors
WEIGHTS = "weights"  # not the state of a training, or not its newest: best.pt, model.safetensors
PART = "part"  # belongs to a save beside it: opt000100.pt
OTHER = "other"  # no save at all: config.json, events.out.tfevents…
UNFINISHED = "unfinished"  # being written: .last.pt, checkpoint-5.tmp, tmp-checkpoint-500

_LAST_WORDS = _words("last latest newest current recent")
_ROLLING = _words("checkpoint ckpt")
_LEFT_WORDS = _words(
    "interrupt interrupted preempt preempted preemption emergency exception sigterm sigusr hpc "
    "autosave autosaved"
)
_PREVIOUS_WORDS = _words("bak bkp old prev previous backup")
_WEIGHTS_WORDS = _words(
    "best ema swa avg averaged final weights export exported pretrained init initial merged "
    "quantized inference serving"
)
# What a file without a number that is a state is called after, beside the words above.
_STATE_WORDS = _words(
    "model models state states save saved snapshot resume trainer training train network net "
    "booster lgb lgbm lightgbm xgb xgboost catboost gbm gbdt forest weights epoch step iter"
)
# Of what lies beside a model's own file, where each has one: as the first word, or these anywhere.
_PART_WORDS = _words(
    "opt optim optimizer optimizers optimiser scheduler schedulers scaler scalers rng dataloader "
    "sampler criterion"
)
_PART = r"replay[_-]?buffer|vecnormalize|random_states?_\d|\.(pdopt|states)$"
# Tensors alone, and texts: seldom the state of a training.
_TENSORS_END = ".safetensors"
TEXT_ENDS = (".txt", ".json")
_UNFINISHED_WORDS = _words(
    "tmp incomplete unfinished uncommitted inprogress staging deleting todelete"
)
_UNFINISHED_ENDS = tuple(_words(".part .partial _partial .temp .lock .swp .crdownload .filepart ~"))
# A file beside a save that says so: NeMo's m-step=9-unfinished.
_UNFINISHED_MARK = r"(?i)(.+)[-_.](?:unfinished|in[-_]?progress)"
# What mkstemp and others call their files.
_UNFINISHED_NAME = r"(?i)tmp[a-z0-9_]{6,8}|\..*|.*[._-]tmp([._-].*)?"

# Weights alone, as transformers, PEFT, diffusers and Flax call them.
_WEIGHTS_NAMES = (
    "model.safetensors",
    "model-*-of-*.safetensors",
    "pytorch_model*.bin",
    "adapter_model.*",
    "pytorch_lora_weights.*",
    "diffusion_pytorch_model*",
    "tf_model.h5",
    "flax_model.msgpack",
    "consolidated*.pth",
    "consolidated*.safetensors",
    "*.onnx",
    "*.gguf",
    "*.engine",
    "*.tflite",
    "*.torchscript",
    "saved_model.pb",
)
# Never a save by itself: what lies beside saves.
_OTHER_NAMES = (
    # transformers, PEFT, tokenizers, sentence-transformers
    "config*.json",
    "generation_config.json",
    "adapter_config.json",
    "*tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "spiece.model",
    "*preprocessor_config.json",
    "processor_config.json",
    "chat_template*",
    "training_args.*",
    "trainer_state.json",
    "trainer_log.jsonl",
    "*_results.json",
    "modules.json",
    "model_index.json",
    "*.index.json",
    # Keras, TensorFlow, DeepSpeed, Orbax, others
    "training_metadata.json",
    "catboost_training.json",
    "metadata.json",
    "*-symbol.json",
    "*options*.json",
    "ds_config*.json",
    "zero_to_fp32.py",
    "_checkpoint_metadata",
    "_metadata",
    "_strings.json",
    "commit_success*",
    "_success",
    "success",
    "done",
    "graph.pbtxt",
    "hparams*.json",
    "params.json",
    "args.json",
    "*metrics*.json",
    "*history*.json",
    "*log.json",
    "*progress*.json",
    "requirements*.txt",
    "*log*.txt",
    "results*.txt",
    "args*.txt",
    "*params.txt",
    "notes*.txt",
    "readme*",
    "license*",
    "events.out.tfevents*",
    "*.symlink",
    "*.done",
    "*.complete",
    # by kind
    *(
        f"*.{end}"
        for end in _words(
            "log out err csv tsv jsonl md rst html py ipynb sh yaml yml toml ini cfg png "
            "jpg jpeg gif svg pdf mp4 wav sha256 md5 prof trace lock meta parquet arrow diff patch"
        )
    ),
)
# Folders in which programs log: no save is in them (but for what a logger's own version holds).
_LOG_FOLDERS = _words(
    "runs run logs log wandb mlruns tensorboard tensorboards tb tblogs events profiler profile "
    "profiles traces plots figures images samples videos media predictions visualizations "
    "visualisations debug code src __pycache__ .hydra hydra aim .aim dvclive comet swanlog "
    "clearml neptune csv_logs eval evals eval_results evaluation generated generations "
    "tokenizer crash_dumps core_dumps completions rollouts git"
)
_LOG_FOLDER_ENDS = ("_logs", "-logs", "_log", "_tensorboard", "_tb", "_samples", "_images")
# Folders that hold saves and are none.
HOLDERS = _words(
    "checkpoints ckpts ckpt weights saves saved snapshots models saved_models model_checkpoints "
    "lightning_logs states catboost_info training_states train_states"
)
# Where a framework keeps states apart from its models (BasicSR), only they are resumed from.
STATE_HOLDERS = _words("training_states train_states")

_DIGITS = r"\d+"
_DAY_FIRST = r"(?<!\d)\d{1,2}[-_.]\d{1,2}[-_.]((?:19|20)\d{2})(?!\d).*"
_WHOLE_NUMBER = r"(?<![\d.])\d+(?!\d|\.\d)"
_HASH = r"(?<![a-z0-9])(?=[0-9a-f]*\d[a-f])[0-9a-f]{7,}(?![a-z0-9])"
# Words before a number that counts; before any other word a decimal number is a measurement.
_COUNTS = _words(
    "epoch epochs ep e step steps global_step s iter iters iteration iterations it i batch batches "
    "ba b update updates round rounds checkpoint checkpoints ckpt chkpt model state save "
    "snapshot samples tokens sample token"
)
_MEASUREMENT = (
    r"(?P<word>[a-z]+(?:\d@\d+|\d)?)(?P<mid>[ =:_-]*)-?(?P<number>\d+\.\d+(?:e[-+]?\d+)?)"
)
_WHOLE_MEASUREMENT = (
    r"(?<![a-z])(loss|acc|accuracy|auc|f1|map|iou|miou|score|reward|return|ppl|perplexity|bleu|mse|"
    r"mae|rmse|dice|err|error|psnr|ssim|wer|cer|fid)[ =:_-]+-?\d+(?:\.\d+)?"
)
_OF = r"[-_.]?(?<!\d)(\d{1,5})[-_]of[-_](\d{1,5})(?!\d)"
_WORLD = r"world[_-]?size[_-]?(\d+)"
_RANK = r"[-_.]?((?:[a-z]+_)?)rank[-_]?(\d+)"
_VERSION = r"[-_]v(\d+)$"
_END = r"(?:\.[a-z]+[0-9]?)+$"


@dataclass(frozen=True)
class Name:
    """What a name says.

    Attributes:
        role: One of the roles above.
        series: Names of one series are compared by their numbers.
        numbers: In their order: epoch and step, or the parts of a date.
        steps: Those that may be a step: no part of a fraction (epoch-0003.000120).
        version: 1 of last-v1.ckpt.
        ranks: Which of several processes wrote it; empty where that is not said.
        world: How many there are (or, of parts counted from 1, how many parts), if that is said.
    """

    role: str
    series: str = ""
    numbers: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    version: int = 0
    ranks: tuple[int, ...] = ()
    world: int | None = None


def parse(name: str, *, is_folder: bool = False) -> Name:
    """Say what a name says."""
    text = name.lower()
    if _is_unfinished(text):
        return Name(UNFINISHED)
    ranks, world, text = _take_ranks(text)
    text, end = _take_end(text)
    version = 0
    if found := re.search(_VERSION, text):
        version, text = int(found[1]), text[: found.start()]
    text = re.sub(_HASH, "", text)
    text = re.sub(_WHOLE_MEASUREMENT, "", re.sub(_MEASUREMENT, _without_measurement, text))
    text = re.sub(_DAY_FIRST, r"\1", text)  # what comes first of day and month, nobody knows
    first = re.search(_DIGITS, text)
    start = text[: first.start()] if first else text
    role = _role(name.lower(), text + end, is_folder)
    if role in (LAST, STATE) and name.lower().endswith(_TENSORS_END) and not is_folder:
        role = DOUBTFUL
    return Name(
        role,
        start.strip(" ._-=") + end,
        tuple(int(each) for each in re.findall(_DIGITS, text)),
        tuple(int(each) for each in re.findall(_WHOLE_NUMBER, text)),
        version,
        ranks,
        world,
    )


def is_log_folder(name: str) -> bool:
    return name.lower() in _LOG_FOLDERS or name.lower().endswith(_LOG_FOLDER_ENDS)


def marked_unfinished(name: str) -> str:
    """Return which save a file calls unfinished, by its own name; "" where it is no such file."""
    found = re.fullmatch(_UNFINISHED_MARK, name)
    return found[1] if found else ""


def without_rank(name: str) -> str:
    """Return a name in lower case, without what says which rank wrote it."""
    return _take_ranks(name.lower())[2]


def is_called(name: str, stem: str) -> bool:
    """Tell whether a save has a name, which may lack its ending (and NeMo's -EMA)."""
    return name == stem or re.fullmatch(rf"{re.escape(stem)}(-EMA)?(\.[a-z]+)?", name) is not None


def is_companion(name: str) -> bool:
    """Tell whether a file only lies beside saves, or in them: logs, settings, pictures."""
    return any(fnmatchcase(name.lower(), pattern) for pattern in _OTHER_NAMES)


def _is_unfinished(text: str) -> bool:
    if text.endswith(_UNFINISHED_ENDS) or re.fullmatch(_UNFINISHED_NAME, text):
        return True
    return not _UNFINISHED_WORDS.isdisjoint(re.findall(r"[a-z]+", text))


def _take_ranks(text: str) -> tuple[tuple[int, ...], int | None, str]:
    """Return the ranks and the number of parts in a name, and the name without them."""
    world = None
    ranks: list[int] = []
    if found := re.search(_WORLD, text):
        world, text = int(found[1]), re.sub(_WORLD, "", text)
    if found := re.search(_OF, text):
        ranks.append(int(found[1]))
        world, text = int(found[2]), re.sub(_OF, "", text)
    ranks += [int(number) for _, number in re.findall(_RANK, text)]
    return tuple(ranks), world, re.sub(_RANK, "", text)


def _take_end(text: str) -> tuple[str, str]:
    """Return a name without its ending, and the ending: .pth.tar, .weights.h5."""
    found = re.search(_END, text)
    if not found or not found.start():
        return text, ""
    return text[: found.start()], found[0]


def _without_measurement(found: re.Match[str]) -> str:
    return found[0] if found["word"] in _COUNTS else ""


def _is_part(words: list[str]) -> bool:
    """Tell whether words name a part: epoch-9-optimizer.pt is one, model_optimizer.pt is not."""
    if words and words[0] in _PART_WORDS:
        return True
    others = {word for word in words[:-1] if word not in _PART_WORDS}
    return len(others) < len(words) - 1 and others <= _COUNTS - {"model", "state"}


def _role(name: str, text: str, is_folder: bool) -> str:
    words = re.findall(r"[a-z]+", text)
    if not is_folder and is_companion(name):
        return OTHER
    if not _PREVIOUS_WORDS.isdisjoint(words):
        return PREVIOUS
    if not _LAST_WORDS.isdisjoint(words) and "best" not in words:
        return LAST
    if not _LEFT_WORDS.isdisjoint(words):
        return LEFT
    if not is_folder and (_is_part(words) or re.search(_PART, name)):
        return PART
    is_numbered = re.search(_DIGITS, text) is not None
    is_kept_up = words and words[0] in _ROLLING and len(words) <= 3 and not is_numbered
    if is_kept_up and (_WEIGHTS_WORDS - {"final"}).isdisjoint(words):
        return LAST  # checkpoint.pth.tar: written again and again
    named = not is_folder and any(fnmatchcase(name, pattern) for pattern in _WEIGHTS_NAMES)
    if named or not _WEIGHTS_WORDS.isdisjoint(words):
        return WEIGHTS
    is_said = not (_STATE_WORDS | _ROLLING).isdisjoint(words)
    if is_folder or is_said or (is_numbered and not name.endswith(TEXT_ENDS)):
        return STATE
    return DOUBTFUL
