"""`gym eval report`: one self-contained HTML page of a run, made from its files alone.

`contents` says what of each rollout the page holds, `page` puts it together; the page's own script and style lie beside them.
"""

from gym.rollouts.report.page import write_report

__all__ = ["write_report"]
