"""The commented plan that ``kingdom template new`` writes."""

from __future__ import annotations

from typing import Final

NAME_MARK: Final = "@NAME@"
TEXT: Final = f"""\
# A plan for agents: works, one after the other, each a conversation with one agent that ends in a checkpoint.
# Check it with `kingdom template check`, run it with `kingdom workflow create`, then `kingdom workflow start`.
name: {NAME_MARK}
description: What this plan is for, in one line.

# The repositories to work on, by the names of `kingdom git ls`. Without any, each workflow names its own: --repo NAME.
# repositories:
#   - app
#   - name: docs
#     base: develop        # start from this branch instead of the default branch

engine: claude             # claude, codex, or {{name: …, options: {{…}}}}; a work may have one of its own
# engine:
#   name: claude
#   options:
#     profile: full        # read, edit (default) or full: which tools it may use where it is not confined
#     caps: {{cost_usd: 5}}  # stop a run that costs more
# model: sonnet            # default: that of the engine
# retries: 1               # how often a failed query is repeated before a person has to decide
# on_failure: pause        # pause: wait for a person; fail: end

works:
  - name: plan
    pause_after: true      # wait for a person: `kingdom workflow resume` goes on
    tasks:
      - name: look
        # What the agent is asked. Variables are filled in: {{{{ workflow.name }}}}, {{{{ issue.key }}}} (--issue KEY),
        # {{{{ anything }}}} (--var anything=TEXT).
        query: |
          Read the code and plan what has to be done for "{{{{ workflow.description }}}}". Change nothing yet.
        report: [Findings, Plan]   # the sections of a file that it writes

  - name: build
    # after: plan          # default: all works before it; two works with the same `after` run side by side
    tasks:
      - name: change
        query: |
          Do what is planned here, and nothing else:

          {{{{ reports["plan/look"] }}}}
      - name: check        # goes on in the same conversation
        query: Run the tests, mend what fails, and say what you ran.

  # Works that ran side by side are merged by one that waits for them:
  # - name: join
  #   after: [api, docs]
  #   merge: true
  #   tasks:
  #     - Check that both fit together.
"""
