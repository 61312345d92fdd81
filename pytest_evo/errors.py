"""The one exception tree.

EvoError
├── UsageProblem            what a person typed or configured; pytest exits with 4
│   ├── SettingsProblem     a setting, with its file and key
│   ├── ArtifactProblem     the artifact directory or its schema
│   ├── SuiteProblem        the collected cases or their split
│   ├── BudgetProblem       a budget that cannot pay for a run
│   ├── RunDirectoryProblem a run directory that cannot be used
│   │   └── JournalDamaged  a journal that is broken in the middle
│   ├── BaselineProblem     what the gate compares with: a git ref or a baseline file
│   ├── ProposerProblem     a proposer that failed itself, every time it was asked
│   ├── WorkerProblem       a worker's machine that cannot go on, as with a full disk
│   └── ModelProblem        a model or agent that can never answer: key, name, program
├── ProposalRefused         an answer of a proposer that is not evaluated
│   └── ProposerFault       no answer: the proposer raised, or gave back something else
├── ProposerExhausted       a proposer that has nothing left to propose
├── ModelFailed             a model that gave no usable answer this time
│   └── ContextOverflow     a request that is too long for the model
├── MessageRefused          a message between controller and worker that is malformed
└── WorkersLost             no worker is left to run rollouts
"""

from __future__ import annotations


class EvoError(Exception):
    """The root of everything pytest-evo raises on purpose."""


class UsageProblem(EvoError):
    """A person has to change something; the message says what to type.

    The plugin turns it into ``pytest.UsageError`` (exit code 4).
    """


class SettingsProblem(UsageProblem):
    """A setting is unknown, malformed or contradicts another one."""


class ArtifactProblem(UsageProblem):
    """The artifact is missing, empty, outside the rootdir or against its schema."""


class SuiteProblem(UsageProblem):
    """The collected cases cannot serve as an evaluator."""


class BudgetProblem(UsageProblem):
    """The budget cannot pay for a run; the message names the figure that can."""


class RunDirectoryProblem(UsageProblem):
    """The run directory is held, foreign, of another version or unwritable."""


class JournalDamaged(RunDirectoryProblem):
    """A journal record before the tail is broken; the message has its number."""


class BaselineProblem(UsageProblem):
    """What the gate is to compare with is missing, unreadable or of another suite."""


class WorkerProblem(UsageProblem):
    """A worker cannot go on before a person has changed something on its machine."""


class ProposerProblem(UsageProblem):
    """The proposer itself failed every time it was asked; it has to be mended."""


class ModelProblem(UsageProblem):
    """A wrong key, an unknown model, an agent that is not there: asking again is vain.

    The message never contains a key.
    """


class ProposalRefused(EvoError):
    """A proposal that costs no rollout: it broke a rule or changed nothing.

    ``str(error)`` is the feedback that the proposer gets.
    """


class ProposerFault(ProposalRefused):
    """The proposer raised something of its own, or gave back no answer at all."""


class ProposerExhausted(EvoError):
    """The proposer has nothing left to propose; the run ends softly."""


class ModelFailed(EvoError):
    """A model gave no answer after all retries."""


class ContextOverflow(ModelFailed):
    """A request is longer than the model's context: cut it and ask again."""


class MessageRefused(EvoError):
    """A message between controller and worker is malformed or of another version."""


class WorkersLost(EvoError):
    """Workers keep dying without progress; the run ends with exit code 17."""
