"""A Pydantic AI agent that computes in a sandbox and looks at the charts it draws.

    pip install -r recipes/requirements.txt
    python recipes/pydantic_ai_agent.py

With ANTHROPIC_API_KEY or OPENAI_API_KEY set it asks a real model (install
`pydantic-ai-slim[anthropic]` or `pydantic-ai-slim[openai]` as well); without, a scripted one.
The chart is saved as chart.png in the current directory.
"""

import base64
import os
from pathlib import Path

from pandastack import Sandbox, SandboxTimeout
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.models import Model

CHART = Path("chart.png").resolve()
QUESTIONS = (
    "Draw 10,000 samples from a normal distribution with mean 100 and standard deviation 15, seed 7. "
    "Keep them in the variable `samples`. What are their mean and standard deviation?",
    "Now show a histogram of the same samples. What does it look like?",
)


def choose_model() -> Model | str:
    if os.environ.get("ANTHROPIC_API_KEY"):
        return "anthropic:claude-sonnet-5-5"
    if os.environ.get("OPENAI_API_KEY"):
        return "openai:gpt-6.1-sol"
    from scripted_pydantic_ai import scripted_model

    return scripted_model()


def main() -> None:
    with Sandbox.create(ttl_seconds=600) as sandbox, sandbox.create_code_context() as context:
        agent = Agent(
            choose_model(),
            instructions="You are a data analyst. Compute with run_python; never guess a number.",
        )

        @agent.tool_plain
        def run_python(code: str) -> list[str | BinaryContent]:
            """Run Python code. Variables live on between calls; figures come back as images."""
            try:
                run = context.run_code(code, timeout_seconds=25)
            except SandboxTimeout as timeout:
                return [f"timed out: {timeout}"]
            texts = [run.stdout, *(result.text or "" for result in run.results), run.error or ""]
            charts = [base64.b64decode(result.png) for result in run.results if result.png]
            if charts:
                CHART.write_bytes(charts[-1])
            images = [BinaryContent(chart, media_type="image/png") for chart in charts]
            return ["\n".join(filter(None, texts)) or "(no text)", *images]

        history = None
        for question in QUESTIONS:
            reply = agent.run_sync(question, message_history=history)
            history = reply.all_messages()
            print(f"> {question}\n{reply.output}\n")
    print(f"chart: {CHART}")


if __name__ == "__main__":
    main()
