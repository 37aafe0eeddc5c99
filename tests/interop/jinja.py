"""Chat templates as Jinja renders them: python tests/interop/jinja.py.

Renders templates and expressions with src/text/jinja.h and with jinja2, set up as transformers sets it up; the texts
must be equal, and what one refuses the other must refuse. Needs build/cpu/tests/render_template (tools/build) or the
program in HEARTH_RENDER; the templates of real models come from HEARTH_DATA (else ../shared/data).
"""

import copy
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import time

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NOW = 1753142400
MIXES = 3000


class Generation(jinja2.ext.Extension):
    """{% generation %} as transformers has it: the block itself, noted."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("note"), [], [], body).set_lineno(line)

    def note(self, caller):
        text = caller()
        self.environment.noted.append(text)
        return text


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def make_environment():
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: time.strftime(form, time.gmtime(NOW))
    return made


def by_jinja(environment, template, variables):
    environment.noted = []
    try:
        text = environment.from_string(template).render(**copy.deepcopy(variables))
    except Exception as error:  # noqa: BLE001: jinja2 raises errors of many kinds
        return {"error": f"{type(error).__name__}: {error}"}
    return {"text": text, "generated": environment.noted}


def by_hearth(cases):
    program = os.environ.get("HEARTH_RENDER", ROOT / "build/cpu/tests/render_template")
    requests = "".join(json.dumps({"template": t, "variables": v, "now": NOW}) + "\n" for t, v in cases)
    done = subprocess.run([program], input=requests, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.rstrip("\n").split("\n")]


MODELS = {
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
    "+ '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "llama2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
    "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + "
    "'\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "llama3.2": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- This block extracts the system message, so we can slot it into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
    "mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}
""",
    "gemma": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% if (message['role'] == 'assistant') %}"
    "{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    "phi3": "{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + "
    "'<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
    "zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + "
    "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "generation": "{% for message in messages %}\n{% if message.role == 'assistant' %}\n<|assistant|>\n{% generation %}\n"
    "{{ message.content }}<|end|>\n{% endgeneration %}\n{% else %}\n<|{{ message.role }}|>\n{{ message.content }}<|end|>\n"
    "{% endif %}\n{% endfor %}",
    "macros": """{% macro render(schema, depth=0) %}
{%- if schema.type is defined %}{{ schema.type }}{% endif %}
{%- for key, value in schema.get('properties', {}) | dictsort %}
{{ '\\n' ~ '  ' * depth }}{{ key }}: {{ render(value, depth + 1) -}}
{% endfor %}{% endmacro %}
{{ render({'type': 'object', 'properties': {'b': {'type': 'string'}, 'a': {'type': 'object', 'properties': {'x': {'type': 'int'}}}}}) }}
""",
}

USER = {"role": "user", "content": " What is 2 + 2?\n"}
SAYS = {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\n4 \u2014 \u00e9\u4e2d\u6587 \U0001f600  "}
SYSTEM = {"role": "system", "content": "Be brief.\u3000"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": [1.5, None, True, "x\"\n\u00e9"]}}}]}
RESULT = {"role": "tool", "content": "4"}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}}]
CONVERSATIONS = [
    [USER],
    [USER, SAYS],
    [SYSTEM, USER, SAYS],
    [SYSTEM, USER, SAYS, USER, SAYS],
    [USER, CALL, RESULT, SAYS],
    [USER, USER],
    [SAYS],
    [],
]


def model_cases():
    templates = dict(MODELS)
    data = pathlib.Path(os.environ.get("HEARTH_DATA", ROOT.parent / "shared/data"))
    if not data.exists():
        print(f"SKIPPED: no test data at {data} (set HEARTH_DATA to its folder)")
    for path in sorted(data.glob("tokenizers/*/*tokenizer_config.json")):
        template = json.loads(path.read_text()).get("chat_template")
        if template:
            templates[path.name] = template
    for template, messages, tools, prompts in itertools.product(
        templates.values(), CONVERSATIONS, [None, TOOLS], [False, True]
    ):
        yield template, {"messages": messages, "tools": tools, "add_generation_prompt": prompts,
                         "bos_token": "<s>", "eos_token": "</s>"}


VALUES = {
    "text": "  Hello, World  ", "wide": "\u4e2d\u6587\u3000 caf\u00e9\U0001f600", "empty": "", "number": 7, "negative": -7, "real": 2.5,
    "large": 1e22, "small": 1e-7, "whole": 3.0, "yes": True, "no": False, "nothing": None, "list": [3, 1, 2], "words": ["b", "A", "c", "b"],
    "map": {"b": 1, "a": [1, {"c": None}], "content": "x"}, "quoted": "it's \"so\"\n\t\\\u00a0", "rows": [{"n": 2, "k": "b"}, {"n": 1, "k": "A"}],
    "tree": [{"n": "a", "c": [{"n": "b", "c": []}, {"n": "c", "c": [{"n": "d", "c": []}]}]}, {"n": "e", "c": []}],
}  # fmt: skip
UNARY = """x|trim x|upper x|lower x|capitalize x|length x|string x|list x|first x|last x|reverse|list x|tojson x|tojson(indent=2)
x|tojson(sort_keys=true,ensure_ascii=true) x|int x|float x|abs x|default('d') x|default('d',true) x|join('-') x|join x|sort x|sort(reverse=true)
x|unique|list x|min x|max x|sum x|items|list|tojson x|dictsort|tojson x|indent x|indent(2,true) x|replace('b','zz') x|map('string')|join(',') x|map('upper')|list
x|select|list x|reject('none')|list x|map(attribute='n')|list x|selectattr('n','gt',1)|list x|rejectattr('n','equalto',1)|list x|selectattr('k')|list
x|sort(attribute='n')|tojson x|sum(attribute='n') x.upper() x.strip() x.lstrip() x.rstrip() x.split() x.split('l') x.split('l',1) x.split(',')[-1] x.rsplit('l',1)
x.splitlines() x.startswith('H') x.endswith(('d','e')) x.title() x.capitalize() x.replace('l','L',1) x.find('l') x.rfind('l') x.count('l') x.strip(' H')
x.removeprefix('it') x.removesuffix('x') x.items()|list|tojson x.keys()|list x.values()|list x.get('a') x.get('q') x.get('q',5) x[0] x[-1] x['b'] x.b x.q x['q'] x[1:] x[:-1] x[::-1] x[::2] x[5:2:-1] x[99]
x[-100:2] not(x) -x +x x+1 x-1 x*2 x/2 x//2 x%2 x**2 1+x x+x x~x~1 x==x x!=7 x<3 x>=3 x>'a' x(in)list x(in)text x(not)(in)words 'b'(in)x x(and)1 x(or)2 x(is)defined x(is)none x(is)string x(is)mapping
x(is)iterable x(is)sequence x(is)number x(is)integer x(is)float x(is)boolean x(is)true x(is)false x(is)odd x(is)even x(is)divisibleby(2) x(is)divisibleby(3) x(is)in([1,7]) x(is)sameas(true) x(is)eq(7) x(is)(not)none
x(if)x(else)0 (x(if)no) x|length>2 x|safe [x,1]|tojson {'k':x}|tojson [x] {'k':x} x|string|length x.a.b x.a[1].c x|last|default('z') range(x)|list x|list|length range(3,x,-1)|list""".split()
SNIPPETS = """{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }};{% endfor %}
{% for k, v in map.items() %}{{ k }}={{ v }},{% endfor %}
{% for k in map %}{{ k }}{% endfor %}{% for c in wide %}[{{ c }}]{% endfor %}{% for u in missing %}x{% else %}none{% endfor %}
{% set x = 1 %}{% for i in list %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(a=1, b='t') %}{% for i in list %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}
{% for i in list if i > 1 %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% if missing %}a{% elif number == 7 %}b{% else %}c{% endif %}{% if no %}a{% elif nothing %}b{% else %}c{% endif %}
{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}{{ number }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m() }}{{ m(b=1, a=2) }}{{ m(1,2,3) | length }}
{% macro m(a) %}x{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}x{% endmacro %}{{ m(z=2) }}
{% set block %}a{{ number }}b{% endset %}{{ block ~ block|length }}
{% set a, b = [1, 2] %}{{ a }}{{ b }}
{% set a, b = [1] %}{{ a }}
{{ raise_exception('no') }}
{{ missing.x }}
{{ missing }}|{{ missing.x is defined }}
{{ map.missing }}|{{ map.missing is defined }}|{{ missing is undefined }}|{{ missing|length }}|{{ missing == gone }}|{{ missing ~ 'a' }}
{{ 'a' 'b' "c" }}{{ 'it\\'s' }}{{ "\\x41\\u00e9\\n\\t\\\\" }}{{ 'q\\d' }}
{{ 1_000 }}
{{ 2 ** 3 ** 2 }}{{ -2 ** 2 }}{{ 7 // -2 }}{{ -7 % 3 }}{{ 7 / 2 }}{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ not 1 == 2 }}{{ 2 + 3 ~ 4 * 5 }}
{{ (1, 2)|list }}{{ [1, [2, 'x'], {'a': none}] }}{{ () | list }}{{ (1,) | length }}{{ [1, 2,] }}
{{ 1 if yes }}|{{ 1 if no }}|{{ 1 if no else 2 if no else 3 }}
{{ number is defined and number is not none and not (number is string) }}
{{ strftime_now('%Y-%m-%d') }}{{ strftime_now is defined }}{{ range is defined }}{{ raise_exception is callable }}
{# comment #}a{#- b -#} c {# d
 #} e
{% raw %}{{ x }}{% if %}{% endraw %} z
  {%- raw -%}  q  {%- endraw -%}  z
{{ [1,2,3][1:] + [4] }}{{ 'abc'[::-1] }}{{ list[-2:] }}{{ 'ab' * 2 }}{{ [1] * 3 }}
{{ rows | map(attribute='k') | map('lower') | join(',') }}{{ rows|selectattr('n', '>', 1)|map(attribute='n')|first }}{{ rows|map(attribute='z', default='-')|list }}
{% for r in rows %}{% for i in list %}{{ loop.depth }}{{ r.n * i }}{% endfor %}{{ loop.index }}{% endfor %}
{% for i in [1,2] %}{{ i }}
{% endfor %}
{{ 1.0 }} {{ 100000000000000000.0 }} {{ 0.1 + 0.2 }} {{ 1e3 }} {{ 12345678.9 }} {{ 3 | float }} {{ '3.7' | int }} {{ 'x' | int(5) }}
{{ {'a': 1, 'b': {'c': 'd'}} }} {{ dict(a=1, b='x') }} {{ true }} {{ none }} {{ True }} {{ [true, none, 1.5, 'q'] }}
{{ '%s' }}{{ 'a' in 'cat' }}{{ 'z' not in 'cat' }}{{ 'b' in map }}{{ 3 in list }}
{% set x = 'a', 'b' %}{{ x | join('+') }}{% for a in 1, 2 %}{{ a }}{% endfor %}{{ (1, 2)|join }}
{%- if yes -%}  a  {%- endif -%}  b  {%+ if yes %}c{% endif +%}
 d
{% if yes %}{% if no %}{% else %}deep{% endif %}{% endif %}{% set q = q | default([]) + [1] %}{{ q }}
{{ ns.x }}{{ 5 is divisibleby 5 }}{{ 5 is in [5] }}{{ 'a' is eq 'a' }}{{ 3.7 | round(0, 'floor') }}{{ 3.2 | round(1, 'ceil') }}
{{ nothing.x }}|{{ number.x }}|{{ text.x }}|{{ list.x }}|{{ nothing['x'] }}|{{ list['x'] }}|{{ number[0] }}
{{ text.strip().split(',')[0].lower() | replace('h', 'j') | upper }}
{% generation %}x{% endgeneration %}{% for i in list %}{% generation %}{{ i }}{% endgeneration %}{% endfor %}"""
SNIPPETS = [part for part in SNIPPETS.split("\n{")]
SNIPPETS = [SNIPPETS[0]] + ["{" + part for part in SNIPPETS[1:]]


# Constructs of chat templates that people use; each renders as jinja2 renders it, or fails where jinja2 fails. What a template keeps
# in a branch that is not taken does not matter.
CONSTRUCTS = r"""{% if no %}{{ list.append(1) }}{% endif %}kept
{% if no %}{{ text|from_json }}{{ text|shuffle(1, a=2) }}{{ x is prime }}{{ x is prime 5 }}{{ len(text) }}{{ text.f().g() }}{{ f(*list, **map) }}{% endif %}kept
{{ list.append(1) }}
{{ map.update({'a': 1}) }}
{% if yes %}{{ text|from_json }}{% endif %}
{{ len(text) }}
{% if no %}{{ lipsum }}{{ cycler }}{{ joiner }}{{ text|tojson(default=1) }}{{ map|tojson(1,2,3,4,5,6,7) }}{{ list|map('shuffle')|list }}{% endif %}kept
{{ text|tojson(default=1) }}
{{ list|map('shuffle')|list }}
{{ rows|selectattr('n', 'prime')|list }}
{% set budget = {0: 0, 512: 128, 1024: 256, 16384: 1024} %}{% for k, v in budget|dictsort %}{{ k }}={{ v }};{% if number <= k %}!{% endif %}{% endfor %}{{ budget[512] }}{{ budget[16384] }}{{ budget[7] is defined }}{{ 0 in budget }}{{ 5 in budget }}{{ budget.get(1024) }}{{ budget|tojson }}{{ budget }}{{ budget.keys()|list }}{{ budget|length }}
{% set ns = namespace(interval=None) %}{% for k, v in {0: 0, 512: 128} | dictsort %}{% if ns.interval is none and number <= k %}{% set ns.interval = v %}{% endif %}{% endfor %}{{ ns.interval }}
{% for k in {2: 'b', 1: 'a'} %}{{ k + 1 }}{% endfor %}{{ {1: 2} == {1: 2} }}{{ {1: 2} == {'1': 2} }}{{ {1: {2: 'x'}}[1][2] }}
{{ map|dictsort }}
{{ map.items() }}|{{ map.items()|list }}|{{ map|items|list }}|{{ map|dictsort|first }}|{{ (map|dictsort)[0] }}|{{ map|dictsort|reverse|list }}
{{ (1, 'a') }}{{ (1,) }}{{ () }}{{ [(1, 2), (3, 4)] }}{% set t = 1, 2 %}{{ t }}{% for k, v in map|dictsort(reverse=true) %}{{ k }}{% endfor %}
{{ '{} is {}'.format('a', 2) }}{{ '{1}{0}'.format('a', 'b') }}{{ '{x}-{y}'.format(x=1, y=none) }}{{ '{{}}'.format() }}{{ '{0[n]}{0[k]!r}'.format(rows[0]) }}
{{ '{:>8}|{:<8}|{:^8}|{:*^9}'.format('ab', 'cd', 'ef', 'gh') }}{{ '{:.2f}|{:6.1f}|{:e}|{:g}|{:%}'.format(3.14159, 2.55, 12345.6, 0.0001, 0.25) }}
{{ '{:5}|{:05}|{:+}|{: }|{:x}|{:#X}|{:b}|{:,}|{:_}'.format(42, -42, 7, 7, 255, 255, 5, 1234567, 1234567) }}{{ '{:.3}'.format('abcdef') }}{{ '{:,.2f}'.format(1234567.891) }}
{{ '{}{}'.format('a') }}
{{ '{q}'.format(1) }}
{{ '{:d}'.format('a') }}
{{ 'a } b'.format() }}
{{ '{!r} {!s}'.format('a', 'b') }}{{ '{}'.format([1, 'a']) }}{{ '{}'.format(1.5) }}{{ wide.format() }}{{ '{:6}|'.format('\u4e2d') }}
{{ '%s has %d' % ('a', 3) }}{{ '%s' % 'x' }}{{ '%5.2f|%-6s|%06d|%+d|%x|%X|%o|%e|%g|%r|%%' % (2.345, 'ab', 42, 5, 255, 255, 8, 1500.0, 0.5, 'q') }}{{ '%s' % [1, 2] }}{{ '%(n)s:%(k)s' % rows[0] }}{{ '%d' % 3.9 }}
{{ '%s' % (1, 2) }}
{{ '%s %s' % 'a' }}
{{ '%d' % 'a' }}
{{ '%s is %s'|format('a', 2) }}{{ '%(a)s'|format(a=1) }}{{ '%.1f'|format(2.25) }}
{{ 'hello world-wide (web) [x]'|title }}{{ "it's"|title }}{{ "it's".title() }}{{ '\u00e9t\u00e9 \u00c9T\u00c9'|lower }}{{ '\u00e9t\u00e9 stra\u00dfe'|upper }}{{ '\u0416\u0436'.lower() }}{{ '\u00e9t\u00e9'|capitalize }}{{ wide|upper }}{{ wide.title() }}
{{ 2.5|round }}{{ 3.14159|round(2) }}{{ 2.675|round(2) }}{{ 7|round }}{{ 3.5|round|int }}{{ -2.5|round }}{{ 0.125|round(2) }}
{{ list|batch(2)|list }}{{ list|batch(2, 'x')|list }}{% for row in rows|batch(1) %}{{ row[0].n }}{% endfor %}
{{ 'a b c'.rsplit(none, 1) }}{{ ' a  b c '.rsplit() }}{{ 'a-b-c'.rsplit('-') }}{{ 'abc'.index('b') }}{{ list.index(2) }}{{ 'k=v=w'.partition('=') }}{{ 'k=v=w'.rpartition('=') }}{{ 'kv'.partition('=') }}{{ 'kv'.rpartition('=')[2] }}
{{ 'abc'.index('z') }}
{{ 'ab'.center(7) }}|{{ 'abc'.center(8, '*') }}|{{ 'ab'.ljust(4) }}|{{ 'ab'.rjust(4, '.') }}|{{ '7'.zfill(3) }}|{{ '-7'.zfill(4) }}|{{ 'x'.zfill(0) }}
{{ 'AB'.isupper() }}{{ 'ab'.islower() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ '12'.isnumeric() }}{{ '12'.isdecimal() }}{{ 'Ab'.isupper() }}{{ ''.isspace() }}{{ '1'.isupper() }}
{% set x | trim | upper %} a b {% endset %}{{ x }}{% filter upper %}a{{ text }}{% endfilter %}{% filter trim | lower %}  AB  {% endfilter %}
{% with a = 1, b = number %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
{% for i in list %}{{ loop.cycle('odd', 'even') }}{% endfor %}
{% for m in rows %}{% if loop.previtem is defined and loop.previtem.n > m.n %}<{% endif %}{% if loop.nextitem is not defined %}.{% endif %}{% endfor %}
{%- set ns = namespace(found=false, ids=[]) -%}{%- for r in rows -%}{%- set ns.ids = ns.ids + [r.n] -%}{%- if r.k == 'b' -%}{%- set ns.found = true -%}{%- endif -%}{%- endfor -%}{{ ns.ids }}{{ ns.found }}
{{ rows|map(attribute='k')|join(', ') }}{{ rows|selectattr('n', 'in', [1])|list|length }}{{ rows|rejectattr('n', 'equalto', 1)|map(attribute='k')|list }}{{ words|unique|list }}{{ words|map('replace', 'b', 'z')|list }}
{{ map|tojson(indent=4) }}{{ map|tojson(separators=(',', ':')) }}{{ map|tojson|safe }}{{ map|tojson(ensure_ascii=False) }}{{ rows|tojson(sort_keys=true) }}
{{ text.split('</think>')[-1].lstrip('\n') }}{{ (text.split('l')|last).rstrip() }}{{ text[2:7] }}{{ text[::-1] }}{{ rows[-1].k }}{{ rows[::-1]|map(attribute='n')|list }}
{{ message.content if message is defined else 'none' }}{{ (map.content or '') ~ '!' }}{{ map.get('x', {}).get('y', 'z') }}{{ 'content' in map and map.content is string }}{{ map.a[1].c is none }}
{% macro param(name, spec={}, depth=0) %}{{ '  ' * depth }}{{ name }}{% for k, v in spec.items() %}{{ param(k, v, depth + 1) }}{% endfor %}{% endmacro %}{{ param('a', {'b': {'c': {}}}) }}
{%- macro strip(content) -%}{{- content|trim -}}{%- endmacro -%}[{{ strip(text) }}][{{ strip(content=wide) }}]
{% if text is not string %}a{% elif list is iterable and list is not mapping %}b{% endif %}{{ (list is sequence) and not (list is string) }}{{ missing is not defined or missing is none }}
{{ raise_exception('Conversation roles must alternate') if no else 'ok' }}{{ 'a' if yes else raise_exception('x') }}
{% set content = map.content if map.content is string else map.content|map(attribute='text')|join %}{{ content }}{% set content %}{{ content }}!{% endset %}{{ content|trim }}
{{ {'name': text, 'arguments': map}|tojson }}{{ dict(a=1)|tojson }}{{ [1, 2]|tojson }}{{ 'x'|tojson }}{{ none|tojson }}{{ true|tojson }}
{% for c in 'abc' %}{{ c }}{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}{% for a, b in [(1, 2), (3, 4)] %}{{ a * b }}{% endfor %}{{ range(3)|list }}{{ range(2, 8, 3)|list }}
{{ words|sort|first }}{{ words|sort(reverse=true)|join }}{{ rows|sort(attribute='n')|map(attribute='n')|list }}{{ list|min }}{{ list|max }}{{ list|sum }}{{ rows|sum(attribute='n') }}{{ list|reverse|list }}
{{ not yes }}{{ yes and no or yes }}{{ 1 if yes and not no }}{{ list|length > 2 }}{{ (list|length) - 1 }}{{ list|length % 2 == 1 }}{{ 7 // 2 }}{{ 2 ** 3 }}{{ 'a' < 'b' }}
{{ text|length }}{{ text|trim|length }}{{ text|indent(2) }}{{ 'a\nb'|indent(2, true) }}{{ 'a\nb'|replace('\n', ' ') }}{{ text|upper|lower }}{{ number|string + 'x' }}{{ '5'|int + 1 }}{{ '2.5'|float }}{{ -7|abs }}
{% generation %}{{ text }}{% endgeneration %}{% if yes %}{%- generation -%} a {%- endgeneration -%}{% endif %}
{% for x in tree recursive %}{{ x.n }}[{{ loop(x.c) }}]{% endfor %}
{% for x in tree recursive %}{{ loop.depth }}{{ loop.depth0 }}{{ loop.index }}{{ x.n }}{% if x.c %}({{ loop(x.c)|trim }}){% endif %}{% else %}none{% endfor %}
{% for x in tree if x.n != 'b' recursive %}{{ x.n }}{{ loop(x.c) }}{% endfor %}
{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('a') %}in {{ number }}{% endcall %}
{% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) each(list) %}({{ i }}){% endcall %}
{% macro each(l) %}{% for i in l %}{{ caller(i, b=2) }}{% endfor %}{% endmacro %}{% call(i, b=1) each(list) %}({{ i }}{{ b }}){% endcall %}
{% macro m(a) %}{{ a }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ m(1) }}{% call m(2) %}x{% endcall %}
{% macro m(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(1, *[2, 4]) }}{{ m(**{'a': 1, 'b': 2}) }}{{ m(*[1], **{'b': 5}) }}{{ m(1, c=7, **{'b': 5}) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m(1) }}
{% macro m(a) %}{{ a }}{{ varargs|length }}{% endmacro %}{{ m(1, 2) }}
{{ '{}-{}'.format(*list[:2]) }}{{ '{a}'.format(**{'a': 1}) }}
{% set ns = namespace({'a': 1}) %}{{ ns.a }}
{% set ns = namespace(**{'a': 1}) %}{{ ns.a }}
{% for k, v in map.items() recursive %}{{ k }}{% endfor %}
{% macro m() %}{{ caller is defined }}{{ varargs is defined }}{% endmacro %}{{ m() }}
{% for x in list %}{% macro m() %}{{ loop is defined }}{{ x is defined }}{% endmacro %}{{ m() }}{% endfor %}
{% for x in list %}{% call(y) m2() %}{% endcall %}{% endfor %}
{% macro outer() %}{% call inner() %}[{{ caller() }}]{% endcall %}{% endmacro %}{% macro inner() %}<{{ caller() }}>{% endmacro %}{% call outer() %}x{% endcall %}
{% set v = 1 %}{% macro m() %}{% set v = 2 %}{{ caller() }}{% endmacro %}{% call m() %}{{ v }}{% endcall %}
{% macro m(v) %}{{ caller() }}{% endmacro %}{% with v = 5 %}{% call m(7) %}{{ v }}{% endcall %}{% endwith %}
{% macro m(a, caller=none) %}{{ a }}{{ caller() if caller else '' }}{% endmacro %}{{ m(1) }}{% call m(2) %}y{% endcall %}
{% for x in tree recursive %}{% if loop.depth > 1 %}{% break %}{% endif %}{{ x.n }}{{ loop(x.c) }}{% endfor %}
{% for x in tree recursive %}{% set l = loop %}{% for y in list %}{{ l(x.c) if loop.first }}{% endfor %}{{ x.n }}{% endfor %}
{% for x in tree recursive %}{% for y in x.c %}{{ loop(y.c) }}{% endfor %}{% endfor %}
{{ caller() }}
{% call m() %}{% endcall %}
{% macro m() %}{{ caller(1) }}{% endmacro %}{% call m() %}{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% call '%s'|format('x') %}{% endcall %}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, **{'a': 2}) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**[1]) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(**{1: 2}) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1], 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(a=1, *[2]) }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(b=1, *[2]) }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(**{'a': 2}, b=3) }}
{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1], *[2]) }}
{{ dict(map, z=1) }}{{ dict() }}{{ dict(**map) }}{{ dict(map, **{'q': 2}) }}
{{ 1_000 }}{{ 1_0.5 }}{{ rows|sort(attribute='k,n')|list }}{{ rows|sort(attribute='n,k', reverse=true)|list }}{{ [[1, 2], [3]]|sum(start=[]) }}
{% for x in [] %}{% else %}{% set q = 1 %}{% endfor %}{{ q is defined }}
{{ 7.5 // -2 }}{{ -7.5 % 2 }}{{ 1e22 % 3 }}{{ 1e22 // 3 }}{{ 0.3 // 0.1 }}{{ 0.3 % 0.1 }}{{ -0.3 % 5 }}"""
CONSTRUCTS = CONSTRUCTS.splitlines()


def construct_cases():
    return [(construct, VALUES) for construct in CONSTRUCTS]


def expression_cases():
    for name, pattern in itertools.product(VALUES, UNARY):
        for word in ("in", "not", "and", "or", "is", "if", "else"):
            pattern = pattern.replace(f"({word})", f" {word} ")
        yield "{% set x = " + name + " %}{{ " + pattern + " }}", VALUES
    for snippet in SNIPPETS:
        yield snippet, VALUES


PIECES = ["{{ number }}", "{{- number -}}", "{{ 'a\\n' -}}", "{# c #}", "{#- c -#}", "{#+ c +#}", "{% raw %}{{{% endraw %}",
          "{%- raw -%} r\n {%- endraw -%}", "{% set q = 1 -%}", "{% set q = 1 %}", " ", "  ", "\n", "\n", "\n\n", "\t", "a", "b {",
          "\r\n"]  # fmt: skip
BLOCKS = [("if yes", "endif"), ("if no", "endif"), ("for i in list", "endfor"), ("set z", "endset")]


def mixed_text(choose, depth):
    text = ""
    for _ in range(choose.randint(1, 7)):
        if depth < 3 and choose.random() < 0.35:
            signs = choose.choices(["", "", "-", "+"], k=4)
            begin, end = choose.choice(BLOCKS)
            text += f"{{%{signs[0]} {begin} {signs[1]}%}}{mixed_text(choose, depth + 1)}{{%{signs[2]} {end} {signs[3]}%}}"
        else:
            text += choose.choice(PIECES)
    return text


def mixed_cases():
    """White space control in every company, from a fixed seed."""
    choose = random.Random(1)
    for _ in range(MIXES):
        yield mixed_text(choose, 0), VALUES


# What Hearth refuses on purpose although jinja2 does not, by a word of its message.
REFUSALS = ("not supported", "expected a call of", "expected a separator", "is supported for", "cannot print", "expected a decimal",
            "upper and lower case", "expected something to look for", "is not a number of 64 bits", "expected a value, got")  # fmt: skip


def differences(cases, counts):
    environment = make_environment()
    for (template, variables), ours in zip(cases, by_hearth(cases), strict=True):
        theirs = by_jinja(environment, template, variables)
        if "error" in ours and "error" in theirs:
            counts["refused"] += 1
        elif "error" in ours and template not in CONSTRUCTS and any(word in ours["error"] for word in REFUSALS):
            counts["unsupported"] += 1
        elif ours == theirs:
            counts["equal"] += 1
        else:
            yield template, theirs, ours


def main():
    wrong = 0
    for name, make in (("models", model_cases), ("constructs", construct_cases), ("expressions", expression_cases),
                       ("white space", mixed_cases)):  # fmt: skip
        cases = list(make())
        counts = {"equal": 0, "refused": 0, "unsupported": 0}
        for template, theirs, ours in differences(cases, counts):
            wrong += 1
            if wrong <= int(os.environ.get("HEARTH_SHOW", "10")):
                print(f"{name}: {template!r}\n  jinja2: {theirs}\n  hearth: {ours}")
        print(f"{name}: {len(cases)} cases, {counts['equal']} equal to jinja2, {counts['refused']} refused by both, "
              f"{counts['unsupported']} refused by Hearth alone")  # fmt: skip
    if wrong:
        print(f"{wrong} cases differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
