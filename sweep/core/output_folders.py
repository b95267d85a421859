"""Where loggers and frameworks put their files when nobody says where: below the working folder.

Trials that share one mix them up there: two trials of one second are one TensorBoard run, and
``lightning_logs/version_0`` belongs to whoever was first.
"""

from __future__ import annotations

NAMES = frozenset(
    {
        "lightning_logs",  # Lightning
        "tb_logs",
        "runs",  # TensorBoard's SummaryWriter
        "wandb",  # Weights & Biases
        "mlruns",  # MLflow
        "mlartifacts",
        "mlflow.db",
        "outputs",  # Hydra
        "multirun",
        "trainer_output",  # transformers
        "tmp_trainer",
        "catboost_info",  # CatBoost
        "dvclive",
        ".aim",
        ".neptune",
        "ray_results",
    }
)
