#include "text/jinja.h"

#include "expect_fault.h"

namespace hearth::text {
namespace {

using testing::HasSubstr;

std::string render(const std::string& source, const Json& variables = Json::object()) {
  return Template(source, "t").render(variables).text;
}
std::string refusal(const std::string& source, const Json& variables = Json::object()) {
  return fault_of([&] { Template(source, "t").render(variables, {.limit_work = 200'000}); });
}

const Json kVariables =
    Json::parse(R"({"text": "  Hi, You ", "n": 7, "list": [3, 1, 2], "map": {"b": 1, "a": "x"},
  "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "none": null})");

TEST(Jinja, Expressions) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"{{ text|trim }}", "Hi, You"},
      {"{{ text.split(',')[-1].strip()|upper }}", "YOU"},
      {"{{ 2 + 3 * 4 ** 2 // 5 }}", "11"},
      {"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }}", "-4 2 3.5"},
      {"{{ 1 < 2 < 3 and not n is none }}", "True"},
      {"{{ list|sort|join('-') }} {{ list[::-1] }} {{ list[1:]|length }}", "1-2-3 [2, 1, 3] 2"},
      {"{{ map|tojson }} {{ map }}", R"({"b": 1, "a": "x"} {'b': 1, 'a': 'x'})"},
      {"{{ map.zero|default('d') }} {{ map.get('q', 3) }}", "d 3"},
      {"{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|first }}", "q"},
      {"{{ 'b' in map }} {{ 'You' in text }} {{ 9 not in list }}", "True True True"},
      {"{{ 'x' if n > 8 else 'y' }}{{ 'z' if n > 8 }}", "y"},
      {"{{ 'a' ~ 1 ~ none ~ missing }}", "a1None"},
      {"{{ 1.0 }} {{ 1e22 }} {{ 0.1 }}", "1.0 1e+22 0.1"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render(source, kVariables), expected) << source;
}

TEST(Jinja, Statements) {
  EXPECT_EQ(render("{% for m in messages %}{{ loop.index0 }}{{ m.role }}{% if not loop.last %},{% endif %}{% "
                   "endfor %}",
                   kVariables),
            "0user,1assistant");
  EXPECT_EQ(render("{% for x in none_such %}a{% else %}b{% endfor %}"), "b");
  EXPECT_EQ(render("{% set x = 1 %}{% for i in list %}{% set x = x + i %}{% endfor %}{{ x }}", kVariables),
            "1");
  EXPECT_EQ(
      render(
          "{% set ns = namespace(x=1) %}{% for i in list %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
          kVariables),
      "7");
  EXPECT_EQ(render("{% macro f(a, b=2) %}<{{ a }}{{ b }}>{% endmacro %}{{ f(1) }}{{ f(b=3, a=4) }}"),
            "<12><43>");
  EXPECT_EQ(render("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 4 %}{% break %}{% endif "
                   "%}{{ i }}{% endfor %}"),
            "013");
  EXPECT_EQ(render("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
}

TEST(Jinja, BlankLinesGoAsHuggingFaceSetsItUp) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a \n {%- if true -%} \n b {%- endif %}\nc"), "abc");
  EXPECT_EQ(render("a {%+ if true +%}\nb{% endif %}"), "a \nb");
  EXPECT_EQ(render("a {# note #}\nb {{ 1 }}\n"), "a b 1");
}

TEST(Jinja, GenerationBlocksAreMarked) {
  const Template parsed(
      "<a>{% generation %}x{{ n }}{% endgeneration %}</a>{% generation %}{% endgeneration %}", "t");
  EXPECT_TRUE(parsed.marks_generation());
  const Rendered rendered = parsed.render(kVariables);
  EXPECT_EQ(rendered.text, "<a>x7</a>");
  EXPECT_EQ(rendered.generated, (std::vector<Span>{{3, 5}, {9, 9}}));
}

TEST(Jinja, RefusesAtParseTimeWithLineAndName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"a\n{% include 'x' %}", "t:2: the tag {% include %} is not supported here"},
      {"{% for x in y recursive %}{% generation %}{% endgeneration %}{% endfor %}",
       "t:1: {% generation %} is not supported inside a macro, a recursive loop"},
      {"{% call x|upper %}{% endcall %}", "t:1: {% call %} is supported for macros only"},
      {"{{ f(*x, 1) }}", "t:1: a positional argument after a named one, * or **"},
      {"{{ f(a=1, a=2) }}", "t:1: the argument 'a' occurs twice"},
      {"{{ 0x1f }}", "t:1: a number that is not decimal is not supported"},
      {"{{ '\\N{BULLET}' }}", "t:1: the escape \\N{...} is not supported"},
      {"{% if x %}\n", "t:1: expected {% endif %}, got the end of the template"},
      {"{{ 'abc }}", "t:1: expected a closing quote"},
      {"{{ (1 }}", "t:1: unexpected '}'"},
      {"{{ 1 2 }}", "t:1: expected '}}', got '2'"},
      {"{% break %}", "t:1: {% break %} outside of a loop"},
      {"{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}",
       "t:1: {% generation %} is not supported inside a macro"},
  };
  for (const auto& one : cases) {
    EXPECT_THAT(fault_of([&] { Template(one.first, "t"); }), HasSubstr(one.second)) << one.first;
  }
}

TEST(Jinja, UnsupportedNamesFailOnlyWhereTheyAreReached) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"x|shuffle", "the filter 'shuffle' is not supported"},
      {"x|from_json", "the filter 'from_json' is not supported"},
      {"x is prime", "the test 'prime' is not supported"},
      {"x is prime 5", "the test 'prime' is not supported"},
      {"x.append(1)", "the method .append() is not supported"},
      {"f(1)", "the function f() is not supported"},
      {"x|trim(*x)", "arguments of 'trim' by * and ** are not supported"},
      {"x|tojson(default=1)", "the argument default= of 'tojson' is not supported"},
      {"x|trim(1, 2)", "more than 1 arguments of 'trim' are not supported, got 2"},
      {"[1]|map('shuffle')", "the filter 'shuffle' is not supported"},
      {"[1]|select('prime')", "the test 'prime' is not supported"},
      {"x.a(1)(2)", "calls of other things than functions, macros and methods are not supported"},
      {"lipsum", "'lipsum' is not supported"},
  };
  for (const auto& [expression, message] : cases) {
    const std::string code(expression);
    EXPECT_EQ(render("{% if false %}{{ " + code + " }}{% endif %}kept"), "kept") << code;
    EXPECT_THAT(refusal("\n{{ " + code + " }}"), HasSubstr(std::string("t:2: ") + message)) << code;
  }
}

TEST(Jinja, RecursiveLoopsCallThemselves) {
  const Json tree = Json::parse(
      R"({"tree": [{"n": "a", "c": [{"n": "b", "c": []}, {"n": "c", "c": [{"n": "d"}]}]}, {"n": "e", "c": []}]})");
  EXPECT_EQ(
      render("{% for x in tree recursive %}{{ loop.depth }}{{ x.n }}{% if x.c %}({{ loop(x.c) }}){% endif "
             "%}{% endfor %}",
             tree),
      "1a(2b2c(3d))1e");
  EXPECT_EQ(
      render("{% for x in tree if x.n != 'c' recursive %}{{ x.n }}{{ loop(x.c) }}{% else %}.{% endfor %}",
             tree),
      "ab.e.");
  EXPECT_THAT(refusal("{% for x in [[1]] %}{{ loop(x) }}{% endfor %}"), HasSubstr("that is not recursive"));
  EXPECT_THAT(refusal("{% for x in [1] recursive %}{{ loop() }}{% endfor %}"), HasSubstr("with one list"));
  EXPECT_THAT(refusal("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"), HasSubstr("too deep"));
}

TEST(Jinja, CallBlocksPassTheirBodyToMacros) {
  EXPECT_EQ(render("{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% set v = 1 %}{% call "
                   "box('a') %}in {{ v }}{% endcall %}"),
            "<a>in 1</a>");
  EXPECT_EQ(
      render("{% macro each(l) %}{% for i in l %}{{ caller(i, b=2) }}{% endfor %}{% endmacro %}{% call(i, "
             "b=1) each([3, 1]) %}({{ i }}{{ b }}){% endcall %}"),
      "(32)(12)");
  EXPECT_EQ(
      render("{% macro m(a) %}{{ a }}{{ caller() if caller else '-' }}{% endmacro %}{{ m(1) }}{% call m(2) "
             "%}x{% endcall %}"),
      "1-2x");
  EXPECT_THAT(refusal("{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}"),
              HasSubstr("does not use caller()"));
  EXPECT_THAT(refusal("{{ caller() }}"), HasSubstr("caller() works only in a macro"));
}

TEST(Jinja, ArgumentsMayBeUnpacked) {
  const std::string macro = "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}";
  EXPECT_EQ(render(macro + "{{ m(*[1, 3, 5]) }}{{ m(0, **{'b': 4, 'c': 6}) }}"), "13(5,){}04(){'c': 6}");
  EXPECT_EQ(
      render("{{ '{}-{x}'.format(*[1], **{'x': 2}) }}{{ dict({'a': 1}, b=2) }}{{ namespace({'a': 3}).a }}"),
      "1-2{'a': 1, 'b': 2}3");
  const std::string plain = "{% macro m(a) %}{{ a }}{% endmacro %}";
  EXPECT_THAT(refusal(plain + "{{ m(1, 2) }}"), HasSubstr("takes at most 1 arguments, but the call has 2"));
  EXPECT_THAT(refusal(plain + "{{ m(1, a=2) }}"), HasSubstr("m() gets two values for 'a'"));
  EXPECT_THAT(refusal(plain + "{{ m(a=1, **{'a': 2}) }}"), HasSubstr("m() gets two values for 'a'"));
  EXPECT_THAT(refusal(plain + "{{ m(**[1]) }}"), HasSubstr("expected a mapping as argument, got a list"));
  EXPECT_THAT(refusal(plain + "{{ m(**{1: 2}) }}"), HasSubstr("expected strings as keys"));
  EXPECT_THAT(refusal(plain + "{{ m(**{'q': 2}) }}"), HasSubstr("has no parameter q"));
}

TEST(Jinja, MacrosSeeTheVariablesAroundThem) {
  EXPECT_EQ(
      render(
          "{% for x in [1, 2] %}{% macro m() %}{{ x }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}"),
      "1122");
  EXPECT_EQ(render("{% macro m() %}{{ x is defined }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}"),
            "False");
  EXPECT_THAT(
      refusal("{% set ns = namespace() %}{% for x in [1] %}{% macro m() %}{% endmacro %}{% set ns.m = m %}"
              "{% endfor %}{% set m = ns.m %}{{ m() }}"),
      HasSubstr("after the block around it has ended"));
}

TEST(Jinja, NumbersAreComparedAndSortedAsPythonDoes) {
  EXPECT_EQ(
      render("{{ 2.5 is odd }}{{ 3.0 is odd }}{{ true is even }}{{ 1e22 is divisibleby(3) }}{{ -3 is odd }}"),
      "FalseTrueFalseFalseTrue");
  EXPECT_EQ(render("{{ -7.5 % 2 }} {{ 1e22 % 3 }} {{ 7.5 // -2 }} {{ 1_000 }}"), "0.5 1.0 -4.0 1000");
  EXPECT_EQ(
      render("{{ [[1, 'b'], [0, 'b'], [2, 'a']]|sort(attribute='1,0') }}{{ [[1], [2]]|sum(start=[]) }}"),
      "[[2, 'a'], [0, 'b'], [1, 'b']][1, 2]");
}

TEST(Jinja, FormatsAsPythonDoes) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"{{ '{:>4}|{:<4}|{:^4}|{:*^5}'.format('ab', 'cd', 'ef', 'g') }}", "  ab|cd  | ef |**g**"},
      {"{{ '{:.2f} {:,} {:05} {:%}'.format(2.345, 1234567, -42, 0.25) }}", "2.35 1,234,567 -0042 25.000000%"},
      {"{{ '{a.role}={a[content]!r} {{}}'.format(a=messages[0]) }}", "user='q' {}"},
      {"{{ '%s has %03d, %.1f%%' % ('x', 7, 2.25) }}{{ '%-3s|' % 'a' }}", "x has 007, 2.2%a  |"},
      {"{{ '%(role)s' % messages[0] }}{{ '%s-%s'|format(1, none) }}", "user1-None"},
      {"{{ (1, 'a') }}{{ (1,) }}{{ map|dictsort }}{{ map.items() }}",
       "(1, 'a')(1,)[('a', 'x'), ('b', 1)]dict_items([('b', 1), ('a', 'x')])"},
      {"{{ 2.5|round }} {{ 2.675|round(2) }} {{ '\u00c9T\u00c9'|lower }} {{ 'stra\u00dfe'|upper }}",
       "2.0 2.67 \xC3\xA9t\xC3\xA9 STRASSE"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(render(source, kVariables), expected) << source;
  EXPECT_THAT(refusal("{{ '{}{}'.format(1) }}"), HasSubstr("a field 1, for which there is no argument"));
  EXPECT_THAT(refusal("{{ '{:{}}'.format(1, 2) }}"), HasSubstr("fields inside the fields"));
  EXPECT_THAT(refusal("{{ '%d' % 'a' }}"), HasSubstr("cannot format a string by '%d'"));
}

TEST(Jinja, MappingsMayHaveIntegerKeys) {
  const std::string budget = "{% set b = {0: 0, 512: 128, 1024: 'x'} %}";
  EXPECT_EQ(render(budget + "{% for k, v in b|dictsort %}{{ k + 1 }}={{ v }};{% endfor %}"),
            "1=0;513=128;1025=x;");
  EXPECT_EQ(
      render(budget + "{{ b[512] }}{{ b.get(0) }}{{ 1024 in b }}{{ '512' in b }}{{ b['512'] is defined }}"),
      "1280TrueFalseFalse");
  EXPECT_EQ(render(budget + "{{ b }}{{ b|tojson }}"),
            R"({0: 0, 512: 128, 1024: 'x'}{"0": 0, "512": 128, "1024": "x"})");
}

TEST(Jinja, RefusesWhileRenderingWithLine) {
  EXPECT_EQ(refusal("\n{{ raise_exception('roles must alternate') }}"),
            "t:2: the template refuses: roles must alternate");
  EXPECT_EQ(refusal("{{ x.y }}"), "t:1: cannot take 'y' of 'x', which is undefined");
  EXPECT_EQ(refusal("{{ 'a' + 1 }}"), "t:1: cannot apply '+' to a string and a number");
  EXPECT_EQ(refusal("{{ 1 // 0 }}"), "t:1: division by zero");
  EXPECT_EQ(refusal("{{ strftime_now('%Y') }}"), "t:1: strftime_now needs a date; set one for the rendering");
  EXPECT_EQ(render("{{ strftime_now is defined }}"), "False");
}

TEST(Jinja, IsBounded) {
  const char* loops = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";
  EXPECT_THAT(refusal(loops), HasSubstr("the template needs more than "));
  const char* doubling =
      "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% "
      "endfor %}";
  EXPECT_THAT(refusal(doubling), HasSubstr("the template needs more than "));
  EXPECT_THAT(refusal("{{ 'a' * 9999999999 }}"), HasSubstr("the template needs more than "));
  EXPECT_THAT(refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), HasSubstr("too deep"));
  EXPECT_THAT(
      refusal("{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      HasSubstr("nested more than 64"));
  EXPECT_THAT(refusal("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("nested too deep"));
  std::string sum = "1";
  for (int i = 0; i < 5000; ++i) sum += "+1";
  EXPECT_THAT(refusal("{{ " + sum + " }}"), HasSubstr("nested too deep"));
  // As they stand, with the limits that data meets.
  const std::string half(200'000, 'a');
  const std::vector<std::pair<const char*, Json>> cases = {
      {"{% for c in x %}{% endfor %}", std::string(3'000'000, 'a')},
      {"{{ x|list|length }}", std::string(3'000'000, 'a')},
      {"{{ x.find(x[:100000] ~ 'b') }}", half},
      {"{{ x.rfind('b' ~ x[:100000]) }}", half},
      {"{{ (x[:100000] ~ 'b') in x }}", half},
      {"{{ x.replace(x[:100000] ~ 'b', '') }}", half},
      {"{{ x.count(x[:100000] ~ 'b') }}", half},
      {"{{ x.strip('bcdefghijklmnopqrstuvwxyz' * 4000 ~ 'a') }}", half},
      {"{{ x.split('a') }}", std::string(6'000'000, 'a')},
      {"{% for i in range(9000) %}{{ '{:10000}'.format(i) }}{% endfor %}", nullptr},
      {"{{ ('%(a).100f' * 1000000) % {'a': 1e300} }}", nullptr},
      {"{{ [1]|batch(1000000000, 'x') }}", nullptr},
      {"{{ 'x'.center(1000000000) }}", nullptr},
      {"{{ x|indent(64) }}", std::string(6'000'000, '\n')},
      {"{{ range(1000)|list|tojson(separators=(x, x)) }}", std::string(400'000, ',')},
      {"{{ [[]] * 6000000 }}", nullptr},
      {"{% for i in range(100) %}{% if x == y %}{% endif %}{% endfor %}", std::string(4'000'000, 'a')},
      {"{% set ns = namespace(x=0) %}{% for i in range(10000000) %}{% set ns.x = namespace(x=ns.x) %}{% "
       "endfor %}",
       nullptr},
  };
  for (const auto& one : cases) {
    const auto render_it = [&] { Template(one.first, "t").render({{"x", one.second}, {"y", one.second}}); };
    EXPECT_THAT(fault_of(render_it), HasSubstr("the template needs more than ")) << one.first;
  }
  const Template prints("{% for i in range(100) %}abcdefghij{% endfor %}", "t");
  EXPECT_THAT(fault_of([&] { prints.render(Json::object(), {.limit_bytes = 500}); }),
              HasSubstr("prints more than 500 bytes"));
}

TEST(Jinja, NamespacesMayHoldEachOtherHoweverDeep) {
  EXPECT_EQ(
      render("{% set ns = namespace(x=0) %}{% for i in range(400000) %}{% set n = namespace(x=ns.x) %}{% set "
             "ns.x = n %}{% endfor %}{% set ns.y = ns %}{{ ns.y.y.x.x.x is defined }}"),
      "True");
}

TEST(Jinja, SeveralRenderingsMayShareABudget) {
  const Template loops("{% for i in range(100) %}{% endfor %}", "t");
  WorkBudget budget{.left = 1000};
  loops.render(Json::object(), {.budget = &budget});
  EXPECT_LT(budget.left, 1000);
  EXPECT_THAT(fault_of([&] {
                for (int i = 0; i < 10; ++i) loops.render(Json::object(), {.budget = &budget});
              }),
              HasSubstr("too many operations for data of this size"));
}

TEST(Jinja, EqualMappingsOfManyKeysAreFoundQuickly) {
  Json a = Json::object(), b = Json::object();
  Json::object_t::Container& x = a.get_ref<Json::object_t&>();
  Json::object_t::Container& y = b.get_ref<Json::object_t&>();
  for (int i = 0; i < 100'000; ++i) {
    x.emplace_back(std::to_string(i), i);
    y.emplace_back(std::to_string(99'999 - i), 99'999 - i);
  }
  EXPECT_EQ(render("{{ a == b }}", {{"a", a}, {"b", b}}), "True");
  y.back().second = 7;
  EXPECT_EQ(render("{{ a == b }}", {{"a", a}, {"b", b}}), "False");
}

}  // namespace
}  // namespace hearth::text
