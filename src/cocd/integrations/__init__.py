"""The library in the tools that people train with.

| module                           | what it brings                                               |
| -------------------------------- | ------------------------------------------------------------ |
| `cocd.integrations.transformers` | `Trainer`, that of Hugging Face, without a backward pass     |
| `cocd.integrations.lightning`    | `Forward`, a mixin for a `LightningModule`                   |
| `cocd.integrations.loggers`      | callbacks for TensorBoard, Weights & Biases, and MLflow      |
| `Steps`                          | one step of any method, and what happened in it, as a dict   |
"""

from .steps import OnStep, Record, Steps

__all__ = ["OnStep", "Record", "Steps"]
