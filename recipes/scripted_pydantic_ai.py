"""A stand-in for a model, so that the recipe runs without a provider key.

It answers each question with one real call of `run_python`, then reports what the tool gave back.
"""

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from scripted_cells import CELLS


def scripted_model() -> FunctionModel:
    return FunctionModel(_respond, model_name="scripted")


def _respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    parts = [part for message in messages for part in message.parts]
    asked = sum(isinstance(part, UserPromptPart) for part in parts)
    answered = [part for part in parts if isinstance(part, ToolReturnPart)]
    if len(answered) < asked:
        code = CELLS[len(answered)]
        return ModelResponse(parts=[ToolCallPart("run_python", {"code": code})])
    return ModelResponse(parts=[TextPart(_report(answered[-1]))])


def _report(tool_return: ToolReturnPart) -> str:
    content = tool_return.content
    items = content if isinstance(content, list) else [content]
    texts = [item.strip() for item in items if isinstance(item, str)]
    images = [item for item in items if isinstance(item, BinaryContent)]
    seen = [f"a chart, {len(image.data)} bytes of {image.media_type}" for image in images]
    return "\n".join([*texts, *seen])
