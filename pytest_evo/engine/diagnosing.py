"""Asks the diagnoser; what it fails at is written down and the run goes on."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.chat import spent_on
from pytest_evo.errors import EvoError
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Node
from pytest_evo.protocols import Diagnosed
from pytest_evo.protocols import Diagnoser
from pytest_evo.tabs import current_tab


async def diagnose(diagnoser: Diagnoser, nodes: Sequence[Node]) -> Diagnosed:
    """Diagnoses of the newest node, or why there are none.

    Raises:
        EvoError: what is no failure of the diagnoser, like a stop or a budget.
    """
    try:
        found: object = await diagnoser.diagnose(nodes)
    except (ModelFailed, ModelProblem) as error:
        # other calls of the step may have gone out beside the one that failed
        spent = current_tab().total()
        usage = spent if spent != NO_USAGE else spent_on(error)
        return Diagnosed(usage=usage, problems=(str(error),))
    except EvoError:
        raise
    except Exception as error:  # noqa: BLE001 - journalled; the proposal does without
        problem = f"it raised {type(error).__name__}: {error}"
    else:
        if isinstance(found, Diagnosed):
            return found
        problem = f"it returned {type(found).__name__}, not a Diagnosed"
    return Diagnosed(usage=current_tab().total(), problems=(problem,))
