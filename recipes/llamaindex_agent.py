"""A LlamaIndex FunctionAgent that computes in a sandbox and looks at the charts it draws.

    pip install -r recipes/requirements.txt
    python recipes/llamaindex_agent.py

With ANTHROPIC_API_KEY or OPENAI_API_KEY set it asks a real model (install
`llama-index-llms-anthropic` or `llama-index-llms-openai` as well); without, a scripted one.
The chart is saved as chart.png in the current directory.
"""

import asyncio
import base64
import os
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import LLM, ImageBlock, TextBlock
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool
from pandastack import Sandbox, SandboxTimeout

CHART = Path("chart.png").resolve()
QUESTIONS = (
    "Draw 10,000 samples from a normal distribution with mean 100 and standard deviation 15, seed 7. "
    "Keep them in the variable `samples`. What are their mean and standard deviation?",
    "Now show a histogram of the same samples. What does it look like?",
)


def choose_model() -> LLM:
    if os.environ.get("ANTHROPIC_API_KEY"):
        from llama_index.llms.anthropic import Anthropic

        return Anthropic(model="claude-sonnet-5-5")
    if os.environ.get("OPENAI_API_KEY"):
        from llama_index.llms.openai import OpenAI

        return OpenAI(model="gpt-6.1-sol")
    from scripted_llamaindex import ScriptedLLM

    return ScriptedLLM()


async def main() -> None:
    with Sandbox.create(ttl_seconds=600) as sandbox, sandbox.create_code_context() as code_context:

        def run_python(code: str) -> list[TextBlock | ImageBlock]:
            """Run Python code. Variables live on between calls; figures come back as images."""
            try:
                run = code_context.run_code(code, timeout_seconds=25)
            except SandboxTimeout as timeout:
                return [TextBlock(text=f"timed out: {timeout}")]
            texts = [run.stdout, *(result.text or "" for result in run.results), run.error or ""]
            charts = [base64.b64decode(result.png) for result in run.results if result.png]
            if charts:
                CHART.write_bytes(charts[-1])
            images = [ImageBlock(image=chart, image_mimetype="image/png") for chart in charts]
            return [TextBlock(text="\n".join(filter(None, texts)) or "(no text)"), *images]

        agent = FunctionAgent(
            tools=[FunctionTool.from_defaults(run_python)],
            llm=choose_model(),
            system_prompt="You are a data analyst. Compute with run_python; never guess a number.",
            streaming=False,
        )
        memory = Memory.from_defaults(session_id=sandbox.id)
        for question in QUESTIONS:
            reply = await agent.run(question, memory=memory)
            print(f"> {question}\n{reply}\n")
    print(f"chart: {CHART}")


if __name__ == "__main__":
    asyncio.run(main())
