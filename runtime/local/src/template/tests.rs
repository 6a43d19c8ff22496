use super::*;
use crate::testing::CHATML;

/// Form of Llama 3: a header for each message, arguments under `parameters`.
const LLAMA: &str = "\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{{- 'Today Date: ' + strftime_now('%d %b %Y') + '\\n\\n' + system + '<|eot_id|>' }}
{%- if tools is not none %}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
    {%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if 'tool_calls' in message %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {{- '{\"name\": \"' + call.name + '\", \"parameters\": ' }}{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
    {%- elif message.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}";

/// Form of Gemma: the roles `user` and `model`, no system message, strictly in turns.
const GEMMA: &str = "\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}
{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

/// Form of Mistral: instructions between marks, the answer ends with the token.
const MISTRAL: &str = "\
{{ bos_token }}{% for message in messages %}\
{% if message.role == 'user' %}{% if loop.last and tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}\
[INST] {{ message.content }}[/INST]\
{% elif message.role == 'assistant' %} {{ message.content.strip() }}{{ eos_token }}{% endif %}{% endfor %}";

/// Form of Phi: a mark for each role.
const PHI: &str = "\
{% for message in messages %}{{ '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

/// Form of Qwen 3: reasoning of earlier answers is left out, and an empty block turns it off.
const QWEN: &str = "\
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == 'user' and not message.content.startswith('<tool_response>') %}{% set ns.last = index %}{% break %}{% endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' and '</think>' in content and loop.index0 < ns.last %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}";

fn talk(messages: &[(&str, &str)]) -> Conversation {
    Conversation {
        messages: (messages.iter())
            .map(|(role, content)| ChatMessage::new(*role, *content))
            .collect(),
        add_generation_prompt: true,
        bos_token: "<s>".into(),
        eos_token: "</s>".into(),
        now: Some(DateTime::constant(2026, 7, 4, 12, 0, 0, 0)),
        ..Conversation::default()
    }
}

fn render(template: &str, conversation: &Conversation) -> String {
    ChatTemplate::parse(template)
        .unwrap()
        .render(conversation)
        .unwrap()
}

fn failure(template: &str) -> String {
    let parsed = ChatTemplate::parse(template);
    let rendered = parsed.and_then(|template| template.render(&talk(&[("user", "x")])));
    rendered.unwrap_err().to_string()
}

fn with_call() -> Conversation {
    let mut conversation = talk(&[("system", "s"), ("user", "u"), ("assistant", ""), ("tool", "7")]);
    let arguments = serde_json::json!({ "path": "<a>", "n": [1, 2] });
    conversation.messages[2].tool_calls = vec![ChatCall::new("1", "count", arguments)];
    let schema = serde_json::json!({ "type": "object" });
    conversation.tools = Some(vec![ChatTool::new("count", "Counts.", schema)]);
    conversation
}

#[test]
fn llama_writes_headers_date_and_calls() {
    let mut conversation = with_call();
    conversation.tools = None;
    assert_eq!(
        render(LLAMA, &conversation),
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 04 Jul 2026\n\ns<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\n\
         {\"name\": \"count\", \"parameters\": {\"n\": [1, 2], \"path\": \"<a>\"}}<|eot_id|>\
         <|start_header_id|>ipython<|end_header_id|>\n\n7<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\n"
    );
}

#[test]
fn tools_are_written_as_python_writes_json() {
    let tool = "{\"type\": \"function\", \"function\": {\"name\": \"count\", \"description\": \"Counts.\", \
                \"parameters\": {\"type\": \"object\"}}}";
    let text = render(CHATML, &with_call());
    assert!(text.contains(&format!("# Tools\n{tool}\n")), "{text}");
    let call =
        "<tool_call>\n{\"name\": \"count\", \"arguments\": {\"n\": [1, 2], \"path\": \"<a>\"}}\n</tool_call>";
    assert!(text.contains(call), "{text}");
    let indented = render(LLAMA, &with_call());
    assert!(
        indented.contains("{\n    \"type\": \"function\",\n"),
        "{indented}"
    );
}

#[test]
fn gemma_phi_and_mistral_write_their_marks() {
    let turns = talk(&[("user", " u "), ("assistant", " a "), ("user", "v")]);
    assert_eq!(
        render(GEMMA, &turns),
        "<s><start_of_turn>user\nu<end_of_turn>\n<start_of_turn>model\na<end_of_turn>\n\
         <start_of_turn>user\nv<end_of_turn>\n<start_of_turn>model\n"
    );
    assert_eq!(
        render(MISTRAL, &turns),
        "<s>[INST]  u [/INST] a</s>[INST] v[/INST]"
    );
    let talk = talk(&[("system", "s"), ("user", "u")]);
    assert_eq!(
        render(PHI, &talk),
        "<|system|>\ns<|end|>\n<|user|>\nu<|end|>\n<|assistant|>\n"
    );
}

#[test]
fn qwen_leaves_out_earlier_reasoning() {
    let mut turns = talk(&[
        ("user", "u"),
        ("assistant", "<think>\nr\n</think>\n\na"),
        ("user", "v"),
    ]);
    let expected = "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n\
                    <|im_start|>user\nv<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(render(QWEN, &turns), expected);
    turns.enable_thinking = Some(false);
    assert_eq!(render(QWEN, &turns), format!("{expected}<think>\n\n</think>\n\n"));
}

#[test]
fn chatml_is_the_form_of_smollm() {
    assert_eq!(
        render(CHATML, &talk(&[("system", "s"), ("user", "u")])),
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn check_tells_if_tools_are_written() {
    let check = |template: &str| ChatTemplate::parse(template).and_then(|template| template.check());
    for (template, has_tools) in [
        (CHATML, true),
        (LLAMA, true),
        (MISTRAL, true),
        (GEMMA, false),
        (PHI, false),
    ] {
        assert_eq!(check(template).unwrap(), Checked { has_tools });
    }
    assert!(check("{{ raise_exception('no') }}").is_err());
}

#[test]
fn error_of_a_template_is_told_with_its_words() {
    assert!(failure("{{ raise_exception('Roles must alternate') }}").contains("Roles must alternate"));
    assert!(failure("{% for %}").contains("syntax error"));
    assert!(failure("{% include 'other' %}").contains("template failed"));
    let long = failure(&format!("{{{{ raise_exception('{}') }}}}", "x".repeat(10_000)));
    assert!(long.chars().count() < 600, "{long}");
    let without_time = Conversation {
        now: None,
        ..talk(&[("user", "x")])
    };
    let template = ChatTemplate::parse("{{ strftime_now('%Y') }}").unwrap();
    assert!(
        template
            .render(&without_time)
            .unwrap_err()
            .to_string()
            .contains("there is no time")
    );
}

#[test]
fn work_and_memory_of_a_template_are_bounded() {
    for hostile in [
        // A text that doubles, in a variable, in a block, and by repetition.
        "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for i in range(60) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
        "{% set x = 'x' * 1000000000 %}",
        "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        // Loops in loops, and a macro without an end.
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for i in range(99999999999) %}{% endfor %}",
    ] {
        let why = failure(hostile);
        assert!(why.contains("template failed"), "{hostile}: {why}");
    }
    for deep in [
        "(".repeat(100_000),
        "{% if 1 %}".repeat(20_000),
        format!("{{{{ {} }}}}", "[".repeat(100_000)),
    ] {
        let parsed = ChatTemplate::parse(&deep);
        assert!(parsed.is_ok() || matches!(parsed, Err(TemplateError::Failed(_))));
    }
}

#[test]
fn output_and_template_are_limited_on_both_sides() {
    let text = |bytes: usize| {
        let template = ChatTemplate::parse("{{ messages[0].content }}").unwrap();
        template.render(&talk(&[("user", &"x".repeat(bytes))]))
    };
    assert_eq!(text(MAX_OUTPUT_BYTES).unwrap().len(), MAX_OUTPUT_BYTES);
    assert!(matches!(
        text(MAX_OUTPUT_BYTES + 1),
        Err(TemplateError::OutputTooLong)
    ));
    let source = "x".repeat(MAX_TEMPLATE_BYTES);
    ChatTemplate::parse(&source).unwrap();
    assert!(matches!(
        ChatTemplate::parse(&format!("{source}x")),
        Err(TemplateError::TooLong)
    ));
    let nested = |depth: usize| {
        let template = "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(DEPTH) }}";
        let template = ChatTemplate::parse(&template.replace("DEPTH", &depth.to_string())).unwrap();
        template.render(&talk(&[]))
    };
    nested(3).unwrap();
    assert!(nested(MAX_RECURSION).is_err());
}

#[test]
fn marks_of_training_are_ignored() {
    let template = "{% generation %}{{ messages[0].content }}{% endgeneration %}";
    assert_eq!(render(template, &talk(&[("user", "x")])), "x");
}
