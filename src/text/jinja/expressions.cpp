#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "base/error.h"
#include "text/jinja/parser.h"

namespace hearth::text::jinja {
namespace {

constexpr int kMaxDepth = 100;
/// Keywords that, after the name of a test, continue the expression and are not an argument of the test.
constexpr std::array kJoiningWords = {"and", "or", "is", "if", "else", "not", "in"};

/// Returns the value of the constants true, false and none (in both spellings); nothing for other names.
std::optional<Json> constant(std::string_view name) {
  if (name == "true" || name == "True") return Json(true);
  if (name == "false" || name == "False") return Json(false);
  if (name == "none" || name == "None") return Json(nullptr);
  return std::nullopt;
}

/// Increments the recursion depth of the parser while it is in scope; throws a UserError at the limit.
class Level {
 public:
  Level(int& depth, const TokenReader& tokens) : depth_(depth) {
    if (++depth_ > kMaxDepth) tokens.fail("an expression is nested too deep");
  }
  ~Level() { --depth_; }

 private:
  int& depth_;
};

std::vector<ExpressionPtr> list_of(ExpressionPtr a, ExpressionPtr b = nullptr, ExpressionPtr c = nullptr) {
  std::vector<ExpressionPtr> operands;
  operands.push_back(std::move(a));
  if (b) operands.push_back(std::move(b));
  if (c) operands.push_back(std::move(c));
  return operands;
}

}  // namespace

ExpressionPtr ExpressionParser::make(ExpressionKind kind, int line, std::vector<ExpressionPtr> operands,
                                     std::string text) const {
  int depth = 1;
  for (const ExpressionPtr& operand : operands) depth = std::max(depth, operand ? operand->depth + 1 : 1);
  if (depth > kMaxDepth) tokens_.fail_at(line, "an expression is nested too deep");
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->depth = depth;
  made->text = std::move(text);
  made->operands = std::move(operands);
  return made;
}

ExpressionPtr ExpressionParser::literal(Json value, int line) const {
  ExpressionPtr made = make(ExpressionKind::literal, line, {});
  made->value = std::move(value);
  return made;
}

ExpressionPtr ExpressionParser::unsupported(std::string what, int line) const {
  return make(ExpressionKind::unsupported, line, {}, std::move(what));
}

ExpressionPtr ExpressionParser::parse() {
  const Level level(depth_, tokens_);
  ExpressionPtr expression = parse_condition();
  while (tokens_.is_word("if")) {
    const int line = tokens_.take().line;
    ExpressionPtr condition = parse_condition();
    ExpressionPtr otherwise = tokens_.take_word("else") ? parse() : nullptr;
    expression = make(ExpressionKind::conditional, line,
                      list_of(std::move(expression), std::move(condition), std::move(otherwise)));
  }
  return expression;
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_conditional) {
  const int line = tokens_.line();
  ExpressionPtr first = with_conditional ? parse() : parse_condition();
  if (!tokens_.is_symbol(",")) return first;
  std::vector<ExpressionPtr> operands = list_of(std::move(first));
  while (tokens_.take_symbol(",")) {
    const TokenKind next = tokens_.peek().kind;
    if (next == TokenKind::block_end || next == TokenKind::variable_end || tokens_.is_symbol(")")) break;
    operands.push_back(with_conditional ? parse() : parse_condition());
  }
  return make(ExpressionKind::tuple, line, std::move(operands));
}

template <typename Part>
ExpressionPtr ExpressionParser::parse_logic(std::string_view word, ExpressionKind kind, Part part) {
  ExpressionPtr left = part();
  while (tokens_.is_word(word)) {
    const int line = tokens_.take().line;
    left = make(kind, line, list_of(std::move(left), part()));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_condition() {
  return parse_logic("or", ExpressionKind::disjunction, [&] { return parse_and(); });
}

ExpressionPtr ExpressionParser::parse_and() {
  return parse_logic("and", ExpressionKind::conjunction, [&] { return parse_not(); });
}

ExpressionPtr ExpressionParser::parse_not() {
  const Level level(depth_, tokens_);
  if (!tokens_.is_word("not")) return parse_compare();
  const int line = tokens_.take().line;
  return make(ExpressionKind::negation, line, list_of(parse_not()));
}

std::string ExpressionParser::take_comparison() {
  for (const char* symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (tokens_.take_symbol(symbol)) return symbol;
  }
  if (tokens_.take_word("in")) return "in";
  if (!tokens_.is_word("not") || !tokens_.is_word("in", 1)) return "";
  tokens_.take();
  tokens_.take();
  return "not in";
}

ExpressionPtr ExpressionParser::parse_compare() {
  const int line = tokens_.line();
  ExpressionPtr first = parse_sum();
  std::vector<std::string> words;
  std::vector<ExpressionPtr> operands = list_of(std::move(first));
  for (std::string word = take_comparison(); !word.empty(); word = take_comparison()) {
    words.push_back(word);
    operands.push_back(parse_sum());
  }
  if (words.empty()) return std::move(operands.front());
  ExpressionPtr made = make(ExpressionKind::compare, line, std::move(operands));
  made->words = std::move(words);
  return made;
}

template <typename Part>
ExpressionPtr ExpressionParser::parse_left(std::initializer_list<std::string_view> symbols, Part part) {
  ExpressionPtr left = part();
  while (true) {
    const auto* found =
        std::find_if(symbols.begin(), symbols.end(), [&](auto s) { return tokens_.is_symbol(s); });
    if (found == symbols.end()) return left;
    const int line = tokens_.take().line;
    left = make(ExpressionKind::arithmetic, line, list_of(std::move(left), part()), std::string(*found));
  }
}

ExpressionPtr ExpressionParser::parse_sum() {
  return parse_left({"+", "-"}, [&] { return parse_concatenation(); });
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  const int line = tokens_.line();
  std::vector<ExpressionPtr> operands = list_of(parse_product());
  while (tokens_.take_symbol("~")) operands.push_back(parse_product());
  if (operands.size() == 1) return std::move(operands.front());
  return make(ExpressionKind::concatenation, line, std::move(operands));
}

ExpressionPtr ExpressionParser::parse_product() {
  return parse_left({"*", "/", "//", "%"}, [&] { return parse_power(); });
}

ExpressionPtr ExpressionParser::parse_power() {
  return parse_left({"**"}, [&] { return parse_unary(true); });
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const Level level(depth_, tokens_);
  const int line = tokens_.line();
  ExpressionPtr node;
  if (tokens_.take_symbol("-")) {
    node = make(ExpressionKind::negate, line, list_of(parse_unary(false)));
  } else if (tokens_.take_symbol("+")) {
    node = make(ExpressionKind::arithmetic, line, list_of(literal(0, line), parse_unary(false)), "+");
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = tokens_.peek();
  switch (token.kind) {
    case TokenKind::name:
      return parse_name();
    case TokenKind::string:
      return parse_string();
    case TokenKind::integer:
    case TokenKind::real:
      return parse_number();
    default:
      break;
  }
  if (tokens_.is_symbol("(")) return parse_parentheses();
  if (tokens_.is_symbol("[")) return parse_list();
  if (tokens_.is_symbol("{")) return parse_mapping();
  tokens_.fail(fmt::format("expected an expression, got {}", tokens_.here()));
}

ExpressionPtr ExpressionParser::parse_name() {
  const Token token = tokens_.take();
  if (const auto value = constant(token.text)) return literal(*value, token.line);
  special.caller = special.caller || token.text == "caller";
  special.varargs = special.varargs || token.text == "varargs";
  special.kwargs = special.kwargs || token.text == "kwargs";
  if (tokens_.is_symbol("(")) return parse_function(token.text, token.line);
  for (const char* name : {"self", "cycler", "joiner", "lipsum"}) {
    if (token.text == name) return unsupported(fmt::format("'{}' is not supported", name), token.line);
  }
  return make(ExpressionKind::name, token.line, {}, token.text);
}

ExpressionPtr ExpressionParser::parse_string() {
  const int line = tokens_.line();
  std::string text;
  while (tokens_.peek().kind == TokenKind::string) text += tokens_.take().text;
  return literal(text, line);
}

ExpressionPtr ExpressionParser::parse_number() {
  const Token token = tokens_.take();
  const char* end = token.text.data() + token.text.size();
  if (token.kind == TokenKind::integer) {
    int64_t value = 0;
    if (std::from_chars(token.text.data(), end, value).ec != std::errc())
      tokens_.fail_at(token.line, "a number that is too large");
    return literal(value, token.line);
  }
  double value = 0;
  if (std::from_chars(token.text.data(), end, value).ec != std::errc())
    tokens_.fail_at(token.line, "a number that is too large");
  return literal(value, token.line);
}

ExpressionPtr ExpressionParser::parse_parentheses() {
  const int line = tokens_.take().line;
  if (tokens_.take_symbol(")")) return make(ExpressionKind::tuple, line, {});
  ExpressionPtr inner = parse_tuple(true);
  tokens_.expect_symbol(")");
  return inner;
}

ExpressionPtr ExpressionParser::parse_list() {
  const int line = tokens_.take().line;
  std::vector<ExpressionPtr> operands;
  while (!tokens_.is_symbol("]")) {
    operands.push_back(parse());
    if (!tokens_.take_symbol(",")) break;
  }
  tokens_.expect_symbol("]");
  return make(ExpressionKind::list, line, std::move(operands));
}

ExpressionPtr ExpressionParser::parse_mapping() {
  const int line = tokens_.take().line;
  std::vector<ExpressionPtr> operands;
  while (!tokens_.is_symbol("}")) {
    operands.push_back(parse());
    tokens_.expect_symbol(":");
    operands.push_back(parse());
    if (!tokens_.take_symbol(",")) break;
  }
  tokens_.expect_symbol("}");
  return make(ExpressionKind::mapping, line, std::move(operands));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr subject) {
  while (true) {
    if (tokens_.is_symbol(".")) {
      subject = parse_attribute(std::move(subject));
    } else if (tokens_.is_symbol("[")) {
      subject = parse_item(std::move(subject));
    } else if (tokens_.is_symbol("(")) {
      const int line = tokens_.line();
      parse_call();
      subject =
          unsupported("calls of other things than functions, macros and methods are not supported", line);
    } else {
      return subject;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr subject) {
  tokens_.take();
  const int line = tokens_.line();
  if (tokens_.peek().kind == TokenKind::integer) {
    return make(ExpressionKind::item, line, list_of(std::move(subject), parse_number()));
  }
  const std::string name = tokens_.expect_name("an attribute after '.'");
  if (!tokens_.is_symbol("("))
    return make(ExpressionKind::attribute, line, list_of(std::move(subject)), name);
  Call call = parse_call();
  if (name == "format" || name == "cycle") return formatted(std::move(subject), std::move(call), name, line);
  if (const Builtin* method = find_method(name))
    return bound(ExpressionKind::method, *method, std::move(subject), std::move(call), line);
  return unsupported(fmt::format("the method .{}() is not supported", name), line);
}

ExpressionPtr ExpressionParser::parse_bound(std::initializer_list<std::string_view> ends) {
  const bool left_out =
      std::any_of(ends.begin(), ends.end(), [&](auto end) { return tokens_.is_symbol(end); });
  return left_out ? nullptr : parse();
}

ExpressionPtr ExpressionParser::parse_item(ExpressionPtr subject) {
  const int line = tokens_.take().line;
  ExpressionPtr first = parse_bound({":"});
  if (!tokens_.take_symbol(":")) {
    tokens_.expect_symbol("]");
    return make(ExpressionKind::item, line, list_of(std::move(subject), std::move(first)));
  }
  std::vector<ExpressionPtr> operands = list_of(std::move(subject));
  operands.push_back(std::move(first));
  operands.push_back(parse_bound({":", "]"}));
  operands.push_back(tokens_.take_symbol(":") ? parse_bound({"]"}) : nullptr);
  tokens_.expect_symbol("]");
  return make(ExpressionKind::slice, line, std::move(operands));
}

/// Consumes the start of an argument, NAME= or "*" or "**", and returns it without "="; "" for a positional
/// argument.
std::string ExpressionParser::take_argument_name() {
  if (tokens_.take_symbol("*")) return "*";
  if (tokens_.take_symbol("**")) return "**";
  if (tokens_.peek().kind != TokenKind::name || !tokens_.is_symbol("=", 1)) return "";
  std::string name = tokens_.take().text;
  tokens_.take();
  return name;
}

ExpressionParser::Call ExpressionParser::parse_call() {
  tokens_.expect_symbol("(");
  Call call;
  while (!tokens_.is_symbol(")")) {
    const std::string name = take_argument_name();
    if (name.empty() && !call.names.empty())
      tokens_.fail("a positional argument after a named one, * or **; move it to the front");
    if (!call.names.empty() && call.names.back() == "**")
      tokens_.fail("an argument after **; move it before **");
    if (std::ranges::find(call.names, name) != call.names.end())
      tokens_.fail(fmt::format("the argument '{}' occurs twice in a call", name));
    if (!name.empty()) call.names.push_back(name);
    call.operands.push_back(parse());
    if (!tokens_.take_symbol(",")) break;
  }
  tokens_.expect_symbol(")");
  return call;
}

ExpressionPtr ExpressionParser::mapping_of(Call call, ExpressionKind kind, int line,
                                           std::string_view function) {
  const size_t num_positional = call.operands.size() - call.names.size();
  if (num_positional > 1 || std::ranges::find(call.names, "*") != call.names.end())
    return unsupported(fmt::format("{}() with more than one positional argument is not supported", function),
                       line);
  std::vector<ExpressionPtr> operands;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const bool named = i >= num_positional && call.names[i - num_positional] != "**";
    operands.push_back(named ? literal(call.names[i - num_positional], line) : nullptr);
    operands.push_back(std::move(call.operands[i]));
  }
  return make(kind, line, std::move(operands));
}

ExpressionPtr ExpressionParser::parse_function(const std::string& name, int line) {
  Call call = parse_call();
  if (name == "namespace") return mapping_of(std::move(call), ExpressionKind::namespace_object, line, name);
  if (name == "dict") return mapping_of(std::move(call), ExpressionKind::mapping, line, name);
  if (const Builtin* function = find_function(name)) {
    return bound(ExpressionKind::function, *function, nullptr, std::move(call), line);
  }
  ExpressionPtr made = make(ExpressionKind::macro, line, std::move(call.operands), name);
  made->words = std::move(call.names);
  return made;
}

ExpressionPtr ExpressionParser::bound(ExpressionKind kind, const Builtin& builtin, ExpressionPtr subject,
                                      Call call, int line) const {
  if (call.unpacks())
    return unsupported(fmt::format("arguments of '{}' by * and ** are not supported", builtin.name), line);
  const size_t num_parameters = builtin.num_parameters();
  const size_t num_positional = call.operands.size() - call.names.size();
  if (num_positional > num_parameters) {
    return unsupported(fmt::format("more than {} arguments of '{}' are not supported, got {}", num_parameters,
                                   builtin.name, num_positional),
                       line);
  }
  std::vector<ExpressionPtr> operands(1 + num_parameters);
  operands[0] = std::move(subject);
  for (size_t i = 0; i < call.operands.size(); ++i) {
    size_t place = i;
    if (i >= num_positional) {
      const std::string& name = call.names[i - num_positional];
      const auto* end = builtin.parameters.begin() + num_parameters;
      place =
          static_cast<size_t>(std::find(builtin.parameters.begin(), end, name) - builtin.parameters.begin());
      if (place == num_parameters)
        return unsupported(fmt::format("the argument {}= of '{}' is not supported", name, builtin.name),
                           line);
    }
    if (operands[1 + place])
      return unsupported(fmt::format("'{}' got an argument twice", builtin.name), line);
    operands[1 + place] = std::move(call.operands[i]);
  }
  for (size_t i = 0; i < builtin.num_required; ++i) {
    if (!operands[1 + i])
      return unsupported(fmt::format("'{}' needs its argument '{}'", builtin.name, builtin.parameters[i]),
                         line);
  }
  ExpressionPtr made = make(kind, line, std::move(operands));
  made->builtin = &builtin;
  return made;
}

ExpressionPtr ExpressionParser::formatted(ExpressionPtr subject, Call call, std::string name,
                                          int line) const {
  std::vector<ExpressionPtr> operands = list_of(std::move(subject));
  std::ranges::move(call.operands, std::back_inserter(operands));
  ExpressionPtr made = make(ExpressionKind::format, line, std::move(operands), std::move(name));
  made->words = std::move(call.names);
  return made;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr subject) {
  while (true) {
    if (tokens_.take_symbol("|")) {
      subject = parse_filter(std::move(subject));
    } else if (tokens_.is_word("is")) {
      subject = parse_test(std::move(subject));
    } else {
      return subject;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr subject) {
  const int line = tokens_.line();
  const std::string name = tokens_.expect_name("a filter after '|'");
  Call call = tokens_.is_symbol("(") ? parse_call() : Call{};
  if (name == "format") return formatted(std::move(subject), std::move(call), "%", line);
  if (const Builtin* filter = find_filter(name))
    return bound(ExpressionKind::filter, *filter, std::move(subject), std::move(call), line);
  return unsupported(fmt::format("the filter '{}' is not supported", name), line);
}

bool ExpressionParser::starts_argument() const {
  const TokenKind kind = tokens_.peek().kind;
  if (kind == TokenKind::string || kind == TokenKind::integer || kind == TokenKind::real) return true;
  if (tokens_.is_symbol("[") || tokens_.is_symbol("{")) return true;
  const auto joins = [&](const char* word) { return tokens_.is_word(word); };
  return kind == TokenKind::name && std::ranges::none_of(kJoiningWords, joins);
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr subject) {
  const int line = tokens_.take().line;
  const bool negated = tokens_.take_word("not");
  const std::string name = tokens_.expect_name("a test after 'is'");
  const Builtin* test = find_test(name);
  Call call;
  if (tokens_.is_symbol("(")) {
    call = parse_call();
  } else if (test != nullptr ? test->num_required > 0 : starts_argument()) {
    call.operands.push_back(parse_postfix(parse_primary()));
  }
  if (test == nullptr) return unsupported(fmt::format("the test '{}' is not supported", name), line);
  ExpressionPtr made = bound(ExpressionKind::test, *test, std::move(subject), std::move(call), line);
  return negated ? make(ExpressionKind::negation, line, list_of(std::move(made))) : std::move(made);
}

}  // namespace hearth::text::jinja
