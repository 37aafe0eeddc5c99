#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/jinja/parser.h"

namespace hearth::text::jinja {
namespace {

constexpr int kMaxBlocks = 30;
constexpr size_t kMaxSourceBytes = size_t{1} << 20;

using Words = std::initializer_list<std::string_view>;

class Parser {
 public:
  Parser(std::string_view source, std::string name)
      : program_{.name = std::move(name), .source = std::string(source)},
        tokens_(tokenize(source, program_.name), program_.name),
        expressions_(tokens_) {}

  Program run() {
    program_.body = parse_body({});
    return std::move(program_);
  }

 private:
  /// Parses statements up to a tag that starts with one of `ends`, which is not consumed. If `ends` is empty,
  /// parses to the end of the template.
  Body parse_body(Words ends) {
    if (++depth_ > kMaxBlocks) tokens_.fail("blocks are nested too deep");
    Body body;
    while (tokens_.peek().kind != TokenKind::end && !at_any(ends)) body.push_back(parse_statement());
    if (tokens_.peek().kind == TokenKind::end && ends.size() > 0) {
      tokens_.fail(fmt::format("expected {{% {} %}}, got the end of the template", *(ends.end() - 1)));
    }
    --depth_;
    return body;
  }

  bool at_any(Words ends) const {
    if (tokens_.peek().kind != TokenKind::block_begin) return false;
    return std::any_of(ends.begin(), ends.end(), [&](auto end) { return tokens_.is_word(end, 1); });
  }

  /// Parses a body and consumes its closing tag `end`.
  Body parse_block(std::string_view end) {
    Body body = parse_body({end});
    tokens_.take();
    tokens_.take();
    end_tag();
    return body;
  }

  void end_tag() { tokens_.expect(TokenKind::block_end, "the end of the tag"); }

  Statement parse_statement() {
    const Token token = tokens_.take();
    Statement made;
    made.line = token.line;
    if (token.kind == TokenKind::text) {
      made.text = token.text;
    } else if (token.kind == TokenKind::variable_begin) {
      made.kind = StatementKind::print;
      made.expression = expressions_.parse_tuple(true);
      tokens_.expect(TokenKind::variable_end, "'}}'");
    } else {
      parse_tag(made);
    }
    return made;
  }

  void parse_tag(Statement& made) {
    const std::string tag = tokens_.expect_name("the name of a tag");
    if (tag == "if") return parse_if(made);
    if (tag == "for") return parse_for(made);
    if (tag == "set") return parse_set(made);
    if (tag == "with") return parse_with(made);
    if (tag == "filter") return parse_filtered(made);
    if (tag == "macro") return parse_macro(made);
    if (tag == "call") return parse_caller(made);
    if (tag == "generation") return parse_generation(made);
    if (tag == "break" || tag == "continue") return parse_jump(made, tag);
    tokens_.fail_at(made.line, fmt::format("the tag {{% {} %}} is not supported here", tag));
  }

  void parse_if(Statement& made) {
    made.kind = StatementKind::conditional;
    ExpressionPtr condition = expressions_.parse_tuple(false);
    while (true) {
      end_tag();
      Body body = parse_body({"elif", "else", "endif"});
      made.branches.push_back({std::move(condition), std::move(body)});
      tokens_.take();
      const std::string next = tokens_.take().text;
      if (next == "endif") break;
      if (!made.branches.back().condition) tokens_.fail("expected {% endif %} after {% else %}");
      condition = next == "elif" ? expressions_.parse_tuple(false) : nullptr;
    }
    end_tag();
  }

  std::vector<std::string> parse_targets() {
    std::vector<std::string> names;
    const bool parentheses = tokens_.take_symbol("(");
    do {
      names.push_back(tokens_.expect_name("a variable"));
      for (const char* reserved :
           {"true", "false", "none", "True", "False", "None", "not", "and", "or", "in", "is"}) {
        if (names.back() == reserved) tokens_.fail(fmt::format("expected a variable, got '{}'", reserved));
      }
    } while (tokens_.take_symbol(","));
    if (parentheses) tokens_.expect_symbol(")");
    return names;
  }

  void parse_for(Statement& made) {
    made.kind = StatementKind::loop;
    made.names = parse_targets();
    if (!tokens_.take_word("in")) tokens_.fail(fmt::format("expected 'in', got {}", tokens_.here()));
    made.expression = expressions_.parse_tuple(false);
    if (tokens_.take_word("if")) made.filter = expressions_.parse();
    made.recursive = tokens_.take_word("recursive");
    end_tag();
    ++loops_;
    captures_ += made.recursive ? 1 : 0;
    made.body = parse_body({"else", "endfor"});
    --loops_;
    tokens_.take();
    if (tokens_.take_word("else")) {
      end_tag();
      made.otherwise = parse_body({"endfor"});
      tokens_.take();
    }
    captures_ -= made.recursive ? 1 : 0;
    tokens_.take();
    end_tag();
  }

  void parse_set(Statement& made) {
    made.kind = StatementKind::assign;
    made.names = parse_targets();
    if (tokens_.take_symbol(".")) {
      if (made.names.size() != 1) tokens_.fail("expected one attribute of one namespace");
      made.text = made.names[0];
      made.names = {tokens_.expect_name("an attribute after '.'")};
    }
    if (tokens_.take_symbol("=")) {
      made.expression = expressions_.parse_tuple(true);
      return end_tag();
    }
    made.kind = StatementKind::assign_block;
    if (tokens_.is_symbol("|")) made.expression = expressions_.parse_filters(expressions_.body_text());
    end_tag();
    made.body = parse_inner("endset");
  }

  void parse_with(Statement& made) {
    made.kind = StatementKind::scope;
    while (tokens_.peek().kind == TokenKind::name) {
      Parameter variable{.name = tokens_.expect_name("a variable"), .default_value = nullptr};
      tokens_.expect_symbol("=");
      variable.default_value = expressions_.parse();
      made.parameters.push_back(std::move(variable));
      if (!tokens_.take_symbol(",")) break;
    }
    end_tag();
    made.body = parse_block("endwith");
  }

  void parse_filtered(Statement& made) {
    made.kind = StatementKind::filtered;
    made.expression = expressions_.parse_filters(expressions_.parse_filter(expressions_.body_text()));
    end_tag();
    made.body = parse_inner("endfilter");
  }

  /// Parses a body whose text is captured instead of printed. {% break %}, {% continue %} and {% generation
  /// %} are not allowed in it.
  Body parse_inner(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    ++captures_;
    Body body = parse_block(end);
    --captures_;
    loops_ = loops;
    return body;
  }

  void parse_macro(Statement& made) {
    made.kind = StatementKind::macro;
    made.text = tokens_.expect_name("the name of a macro");
    parse_parameters(made);
    end_tag();
    parse_macro_body(made, "endmacro");
  }

  /// Parses {% call(parameters) macro(...) %} and its body. The macro renders the body by calling
  /// caller(...).
  void parse_caller(Statement& made) {
    made.kind = StatementKind::call;
    made.text = "caller";
    if (tokens_.is_symbol("(")) parse_parameters(made);
    made.expression = expressions_.parse();
    if (made.expression->kind != ExpressionKind::macro)
      tokens_.fail("{% call %} is supported for macros only; write {% call NAME(...) %}");
    end_tag();
    parse_macro_body(made, "endcall");
  }

  /// Parses the body of a macro or {% call %}, and records which special names (caller, varargs, kwargs) it
  /// uses. They count as used in the enclosing body too.
  void parse_macro_body(Statement& made, std::string_view end) {
    const SpecialNames outer = std::exchange(expressions_.special, {});
    made.body = parse_inner(end);
    SpecialNames& used = expressions_.special;
    const auto has = [&](std::string_view name) {
      return std::ranges::any_of(made.parameters, [&](const auto& known) { return known.name == name; });
    };
    made.special = {.caller = used.caller && !has("caller"),
                    .varargs = used.varargs && !has("varargs"),
                    .kwargs = used.kwargs && !has("kwargs")};
    used = {.caller = used.caller || outer.caller,
            .varargs = used.varargs || outer.varargs,
            .kwargs = used.kwargs || outer.kwargs};
  }

  void parse_parameters(Statement& made) {
    tokens_.expect_symbol("(");
    while (!tokens_.is_symbol(")")) {
      Parameter parameter{.name = tokens_.expect_name("a parameter"), .default_value = nullptr};
      if (tokens_.take_symbol("=")) parameter.default_value = expressions_.parse();
      made.parameters.push_back(std::move(parameter));
      if (!tokens_.take_symbol(",")) break;
    }
    tokens_.expect_symbol(")");
  }

  void parse_generation(Statement& made) {
    if (captures_ > 0)
      tokens_.fail(
          "{% generation %} is not supported inside a macro, a recursive loop or a {% set %}, {% call %} or "
          "{% filter %} block");
    made.kind = StatementKind::generation;
    program_.marks_generation = true;
    end_tag();
    ++captures_;
    made.body = parse_block("endgeneration");
    --captures_;
  }

  void parse_jump(Statement& made, std::string_view tag) {
    if (loops_ == 0) tokens_.fail(fmt::format("{{% {} %}} outside of a loop", tag));
    made.kind = tag == "break" ? StatementKind::break_loop : StatementKind::next;
    end_tag();
  }

  Program program_;
  TokenReader tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;
  int captures_ = 0;
};

}  // namespace

std::unique_ptr<const Program> parse(std::string_view source, std::string name) {
  if (source.size() > kMaxSourceBytes)
    user_error("{}:1: the template has more than {} bytes", name, kMaxSourceBytes);
  return std::make_unique<const Program>(Parser(source, std::move(name)).run());
}

}  // namespace hearth::text::jinja
