"""A stand-in for a model, so that the recipe runs without a provider key.

It answers each question with one real call of `run_python`, then reports what the tool gave back.
"""

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    ImageBlock,
    LLMMetadata,
    MessageRole,
    TextBlock,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection

from scripted_cells import CELLS


class ScriptedLLM(FunctionCallingLLM):
    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="scripted", is_function_calling_model=True, is_chat_model=True)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        asked = sum(message.role == MessageRole.USER for message in messages)
        answered = [message for message in messages if message.role == MessageRole.TOOL]
        if len(answered) < asked:
            block = ToolCallBlock(
                tool_call_id=f"call-{asked}",
                tool_name="run_python",
                tool_kwargs={"code": CELLS[len(answered)]},
            )
        else:
            block = TextBlock(text=_report(answered[-1]))
        return ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, blocks=[block]))

    def _prepare_chat_with_tools(self, tools: Any, chat_history: Any = None, **kwargs: Any) -> dict[str, Any]:
        return {"messages": chat_history or []}

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        return [
            ToolSelection(tool_id=block.tool_call_id, tool_name=block.tool_name, tool_kwargs=block.tool_kwargs)
            for block in response.message.blocks
            if isinstance(block, ToolCallBlock)
        ]

    def _not_scripted(self, *args: Any, **kwargs: Any) -> CompletionResponse:
        raise NotImplementedError("the scripted model only answers achat")

    chat = stream_chat = complete = stream_complete = _not_scripted

    async def _not_scripted_async(self, *args: Any, **kwargs: Any) -> CompletionResponse:
        raise NotImplementedError("the scripted model only answers achat")

    acomplete = astream_chat = astream_complete = _not_scripted_async


def _report(message: ChatMessage) -> str:
    texts = [block.text.strip() for block in message.blocks if isinstance(block, TextBlock)]
    seen = [
        f"a chart, {len(block.resolve_image().read())} bytes of {block.image_mimetype}"
        for block in message.blocks
        if isinstance(block, ImageBlock)
    ]
    return "\n".join([*texts, *seen])
