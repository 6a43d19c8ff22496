"""The openai package for Python and LangChain's ChatOpenAI, driven against `toolcell serve`."""

import json

import openai
import pydantic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

client = openai.OpenAI(max_retries=0)
messages = [{"role": "user", "content": "Hi"}]
parameters = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def refused(kind, call):
    """Asserts that a call fails with an error of the package."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected")


assert [model.id for model in client.models.list()] == ["default", "asking", "counting", "structured"]

# Chat Completions.
chat = client.chat.completions.create(model="default", messages=messages)
assert chat.choices[0].message.content == "Hello from the agent."
assert chat.usage.total_tokens > 0
chunks = list(client.chat.completions.create(
    model="counting", messages=messages, stream=True, stream_options={"include_usage": True}
))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == "It has three words.", text
assert chunks[-1].usage.total_tokens > 0

weather = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
for stream in (False, True):
    if stream:
        with client.chat.completions.stream(model="asking", messages=messages, tools=[weather]) as streamed:
            answer = streamed.get_final_completion()
    else:
        answer = client.chat.completions.create(model="asking", messages=messages, tools=[weather])
    assert answer.choices[0].finish_reason == "tool_calls"
    said = answer.choices[0].message
    assert said.content == "Let me look."
    (call,) = said.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    following = [*messages, said.model_dump(exclude_none=True), result]
    answer = client.chat.completions.create(model="asking", messages=following, tools=[weather])
    assert answer.choices[0].message.content == "It rains in Oslo."

# Responses.
first = client.responses.create(model="default", input="Hi")
assert first.output_text == "Hello from the agent."
assert first.usage.total_tokens > 0
with client.responses.stream(model="default", input="More", previous_response_id=first.id) as streamed:
    text = "".join(event.delta for event in streamed if event.type == "response.output_text.delta")
    second = streamed.get_final_response()
assert text == second.output_text == "The second answer."
weather = {"type": "function", "name": "weather", "parameters": parameters, "strict": True}
called = client.responses.create(model="asking", input="Hi", tools=[weather])
(call,) = [item for item in called.output if item.type == "function_call"]
output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
answer = client.responses.create(model="asking", tools=[weather], previous_response_id=called.id, input=[output])
assert answer.output_text == "It rains in Oslo."

# Answers by a schema.
class Weather(pydantic.BaseModel):
    """Weather of a city."""

    city: str
    rain: bool


rain = Weather(city="Oslo", rain=True)
parsed = client.chat.completions.parse(model="structured", messages=messages, response_format=Weather)
assert parsed.choices[0].message.parsed == rain
with client.chat.completions.stream(model="structured", messages=messages, response_format=Weather) as streamed:
    assert streamed.get_final_completion().choices[0].message.parsed == rain
assert client.responses.parse(model="structured", input="Hi", text_format=Weather).output_parsed == rain

# Errors.
wrong = openai.OpenAI(api_key="x" * 40, max_retries=0)
refused(openai.AuthenticationError, lambda: wrong.models.list())
error = refused(openai.NotFoundError, lambda: client.chat.completions.create(model="gpt-4", messages=messages))
assert error.code == "model_not_found"
refused(openai.BadRequestError, lambda: client.chat.completions.create(model="default", messages=[]))
refused(openai.BadRequestError, lambda: client.responses.create(model="default", input=[]))
refused(openai.NotFoundError, lambda: client.responses.create(model="default", input="Hi", previous_response_id="resp_1"))
print("serve clients: openai for Python: passed")


@tool
def weather_tool(city: str) -> str:
    """Weather of a city."""
    return "rain"


weather_tool.name = "weather"
for responses in (False, True):
    def of(model):
        return ChatOpenAI(model=model, use_responses_api=responses, max_retries=0)

    assert of("default").invoke("Hi").text == "Hello from the agent."
    assert "".join(chunk.text for chunk in of("counting").stream("Hi")) == "It has three words."
    bound = of("asking").bind_tools([weather_tool])
    asked = HumanMessage("Does it rain?")
    said = bound.invoke([asked])
    assert [(call["name"], call["args"]) for call in said.tool_calls] == [("weather", {"city": "Oslo"})]
    result = ToolMessage("rain", tool_call_id=said.tool_calls[0]["id"])
    assert bound.invoke([asked, said, result]).text == "It rains in Oslo."
    assert of("structured").with_structured_output(Weather, method="json_schema").invoke("Hi") == rain
    refused(openai.NotFoundError, lambda: of("gpt-4").invoke("Hi"))
print("serve clients: LangChain for Python: passed")
