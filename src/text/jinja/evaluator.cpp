#include "text/jinja/format.h"
#include "text/jinja/scopes.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace hearth::text {
namespace jinja {
namespace {

constexpr int kMaxStatementDepth = 1000;
constexpr int kMaxCalls = 50;  ///< max nesting depth of calls of macros and recursive loops

/// Control flow after a statement. next_round: {% continue %}; leave_loop: {% break %}.
enum class Flow { next_statement, next_round, leave_loop };

/// Interpreter that walks the syntax tree of a template. Each statement and expression is charged as work,
/// which is limited (RenderOptions::limit_work).
class Evaluator {
 public:
  Evaluator(const Program& program, const Json& variables, const RenderOptions& options)
      : run_(program.name, options), variables_(variables) {}

  Rendered render(const Body& body) {
    execute(body);
    return std::move(out_);
  }

 private:
  Flow execute(const Body& body) {
    const Level level(*this);
    for (const Statement& statement : body) {
      run_.at_line(statement.line);
      run_.spend(1);
      if (const Flow flow = execute(statement); flow != Flow::next_statement) return flow;
    }
    return Flow::next_statement;
  }

  Flow execute(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::text:
        write(statement.text);
        break;
      case StatementKind::print:
        write(text_of(run_, evaluate(*statement.expression)));
        break;
      case StatementKind::conditional:
        return execute_choice(statement);
      case StatementKind::loop:
        return execute_loop(statement, evaluate(*statement.expression), scopes_.here());
      case StatementKind::assign:
        execute_assign(statement);
        break;
      case StatementKind::assign_block:
        unpack(statement, filtered(statement));
        break;
      case StatementKind::scope:
        return execute_scope(statement);
      case StatementKind::filtered:
        write(text_of(run_, filtered(statement)));
        break;
      case StatementKind::macro:
        scopes_.set(statement.text, Value::of(Macro{&statement, scopes_.here()}));
        break;
      case StatementKind::call:
        write(text_of(run_, call(*statement.expression, &statement)));
        break;
      case StatementKind::generation:
        return execute_generation(statement);
      case StatementKind::break_loop:
        return Flow::leave_loop;
      case StatementKind::next:
        return Flow::next_round;
    }
    return Flow::next_statement;
  }

  void write(std::string_view text) {
    if (std::ssize(out_.text) + std::ssize(text) > run_.options().limit_bytes) {
      run_.fail(fmt::format("the template prints more than {} bytes", run_.options().limit_bytes));
    }
    out_.text += text;
  }

  Flow execute_choice(const Statement& statement) {
    for (const Branch& branch : statement.branches) {
      if (!branch.condition || is_true(evaluate(*branch.condition))) return execute(branch.body);
    }
    return Flow::next_statement;
  }

  std::vector<Value> loop_items(const Statement& statement, const Value& whole, ScopeRef outer) {
    std::vector<Value> items = items_of(run_, whole);
    if (!statement.filter) return items;
    std::vector<Value> kept;
    scopes_.open(run_, outer);
    for (Value& item : items) {
      unpack(statement, item);
      if (is_true(evaluate(*statement.filter))) kept.push_back(std::move(item));
    }
    scopes_.close();
    return kept;
  }

  /// Assigns a value to the statement's variable. If it has several variables, assigns the value's elements
  /// to them.
  void unpack(const Statement& statement, const Value& item) {
    if (statement.names.size() == 1) {
      scopes_.set(statement.names[0], item);
      return;
    }
    const std::vector<Value> parts = items_of(run_, item);
    if (parts.size() != statement.names.size()) {
      run_.fail(fmt::format("expected {} values to unpack, got {}", statement.names.size(), parts.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) scopes_.set(statement.names[i], parts[i]);
  }

  Flow execute_loop(const Statement& statement, const Value& whole, ScopeRef outer, int64_t depth = 1) {
    const std::vector<Value> items = loop_items(statement, whole, outer);
    if (items.empty()) {
      scopes_.open(run_, outer);
      const Flow flow = execute(statement.otherwise);
      scopes_.close();
      return flow;
    }
    const auto loop = std::make_shared<Loop>();
    loop->recursive = statement.recursive ? &statement : nullptr;
    loop->scope = outer;
    loop->depth = depth;
    loop->length = std::ssize(items);
    loop->items = &items;
    for (; loop->index < loop->length; ++loop->index) {
      run_.spend(1);
      scopes_.open(run_, outer, {{"loop", Value::of(std::shared_ptr<const Loop>(loop))}});
      unpack(statement, items[static_cast<size_t>(loop->index)]);
      const Flow flow = execute(statement.body);
      scopes_.close();
      if (flow == Flow::leave_loop) break;
    }
    loop->items = nullptr;
    return Flow::next_statement;
  }

  /// Executes {% with %}. Its variables are evaluated in the enclosing scope.
  Flow execute_scope(const Statement& statement) {
    Variables variables;
    for (const Parameter& variable : statement.parameters)
      variables[variable.name] = evaluate(*variable.default_value);
    scopes_.open(run_, scopes_.here(), std::move(variables));
    const Flow flow = execute(statement.body);
    scopes_.close();
    return flow;
  }

  /// Renders the body of {% filter %} or {% set %} to a string and applies the statement's filters to it.
  Value filtered(const Statement& statement) {
    Value text = captured([&] { execute(statement.body); });
    if (!statement.expression) return text;
    scopes_.open(run_, scopes_.here(), {{kBodyText, std::move(text)}});
    Value result = evaluate(*statement.expression);
    scopes_.close();
    return result;
  }

  void execute_assign(const Statement& statement) {
    Value value = evaluate(*statement.expression);
    if (!statement.text.empty()) {
      Namespace* namespace_object = lookup(statement.text).namespace_object();
      if (namespace_object == nullptr)
        run_.fail(fmt::format("'{}' is no namespace, so it cannot be assigned to", statement.text));
      (*namespace_object)[statement.names[0]] = std::move(value);
      return;
    }
    unpack(statement, value);
  }

  Flow execute_generation(const Statement& statement) {
    const int64_t first = std::ssize(out_.text);
    const Flow flow = execute(statement.body);
    out_.generated.push_back({first, std::ssize(out_.text)});
    return flow;
  }

  /// Calls print() and returns its output as a string value instead of adding it to the rendered text.
  template <typename Print>
  Value captured(Print print) {
    std::string before = std::exchange(out_.text, {});
    print();
    run_.spend(std::ssize(out_.text) / 16);
    return Json(std::exchange(out_.text, std::move(before)));
  }

  Value lookup(std::string_view name) {
    run_.spend(1);
    if (const Value* found = scopes_.find(name)) return *found;
    if (const auto found = variables_.find(name); found != variables_.end()) return Value::view(*found);
    const Builtin* function = find_function(name);
    if (function != nullptr && (name != "strftime_now" || run_.options().now)) return Value::of(function);
    return Value::undefined(std::string(name));
  }

  Value evaluate(const Expression& e) {
    const Level level(*this);
    run_.at_line(e.line);
    run_.spend(1);
    switch (e.kind) {
      case ExpressionKind::literal:
        return Value::view(e.value);
      case ExpressionKind::name:
        return lookup(e.text);
      case ExpressionKind::list:
        return list_value(run_, evaluate_all(e));
      case ExpressionKind::tuple:
        return list_value(run_, evaluate_all(e)).with_print_type(PrintType::tuple);
      case ExpressionKind::mapping:
        return evaluate_mapping(e);
      case ExpressionKind::namespace_object:
        return evaluate_space(e);
      case ExpressionKind::attribute:
        return evaluate_attribute(e);
      case ExpressionKind::item:
        return evaluate_item(e);
      case ExpressionKind::slice:
        return evaluate_slice(e);
      case ExpressionKind::filter:
      case ExpressionKind::test:
      case ExpressionKind::method:
      case ExpressionKind::function:
        return call_builtin(e);
      case ExpressionKind::format:
        return evaluate_format(e);
      case ExpressionKind::macro:
        return call(e);
      case ExpressionKind::negate:
        return arithmetic(run_, "-", Json(0), evaluate(*e.operands[0]));
      case ExpressionKind::negation:
        return Value::boolean(!is_true(evaluate(*e.operands[0])));
      case ExpressionKind::arithmetic:
        return evaluate_arithmetic(e);
      case ExpressionKind::compare:
        return Value::boolean(compare(e));
      case ExpressionKind::conjunction:
        return evaluate_logic(e, false);
      case ExpressionKind::disjunction:
        return evaluate_logic(e, true);
      case ExpressionKind::conditional:
        return evaluate_choice(e);
      case ExpressionKind::concatenation:
        return concatenate(e);
      case ExpressionKind::unsupported:
        run_.fail(e.text);
    }
    internal_error("an expression of an unknown kind");
  }

  std::vector<Value> evaluate_all(const Expression& e) {
    std::vector<Value> values;
    for (const ExpressionPtr& operand : e.operands) values.push_back(operand ? evaluate(*operand) : Value());
    return values;
  }

  Value evaluate_mapping(const Expression& e) {
    Json mapping = Json::object();
    const std::vector<Value> values = evaluate_all(e);
    for (size_t i = 0; i + 1 < values.size(); i += 2) {
      if (!e.operands[i]) {
        for (const auto& [key, value] : entries_of(run_, values[i + 1])) {
          run_.spend(std::ssize(mapping));
          mapping[std::string(key)] = json_of(run_, value);
        }
        continue;
      }
      const auto key = key_in_mapping(values[i]);
      if (!key)
        run_.fail(fmt::format("keys other than strings and integers are not supported, got {}",
                              kind_of(values[i])));
      run_.spend(static_cast<int64_t>(i) + std::ssize(*key) / 16);
      mapping[*key] = json_of(run_, values[i + 1]);
    }
    return mapping;
  }

  Value evaluate_space(const Expression& e) {
    run_.spend(16);
    Namespace& namespace_object = namespaces_.emplace_back();
    for (size_t i = 0; i + 1 < e.operands.size(); i += 2) {
      run_.spend(8);
      Value value = evaluate(*e.operands[i + 1]);
      if (!e.operands[i]) {
        for (auto& [key, part] : entries_of(run_, value))
          namespace_object[std::string(key)] = std::move(part);
        continue;
      }
      namespace_object[e.operands[i]->value.get<std::string>()] = std::move(value);
    }
    return Value::of(&namespace_object);
  }

  Value evaluate_attribute(const Expression& e) {
    const Value subject = evaluate(*e.operands[0]);
    run_.at_line(e.line);
    return attribute_of(run_, subject, e.text);
  }

  Value evaluate_item(const Expression& e) {
    const Value subject = evaluate(*e.operands[0]);
    const Value key = evaluate(*e.operands[1]);
    run_.at_line(e.line);
    return item_of(run_, subject, key);
  }

  Value evaluate_slice(const Expression& e) {
    const std::vector<Value> values = evaluate_all(e);
    return slice_of(run_, values[0], std::span(values).subspan(1));
  }

  Value evaluate_arithmetic(const Expression& e) {
    const Value a = evaluate(*e.operands[0]);
    const Value b = evaluate(*e.operands[1]);
    run_.at_line(e.line);
    return arithmetic(run_, e.text, a, b);
  }

  bool compare(const Expression& e) {
    Value left = evaluate(*e.operands[0]);
    for (size_t i = 0; i < e.words.size(); ++i) {
      Value right = evaluate(*e.operands[i + 1]);
      run_.at_line(e.line);
      if (!compares(run_, e.words[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  Value evaluate_logic(const Expression& e, bool stops_at) {
    Value left = evaluate(*e.operands[0]);
    return is_true(left) == stops_at ? left : evaluate(*e.operands[1]);
  }

  Value evaluate_choice(const Expression& e) {
    if (is_true(evaluate(*e.operands[1]))) return evaluate(*e.operands[0]);
    return e.operands.size() > 2 ? evaluate(*e.operands[2]) : Value();
  }

  Value concatenate(const Expression& e) {
    std::string text;
    for (const ExpressionPtr& operand : e.operands) {
      const std::string more = text_of(run_, evaluate(*operand));
      run_.spend(std::ssize(more) / 16);
      text += more;
    }
    return Json(std::move(text));
  }

  Value call_builtin(const Expression& e) {
    const Value subject = e.operands[0] ? evaluate(*e.operands[0]) : Value();
    std::array<Value, kMaxParameters> arguments;
    for (size_t i = 1; i < e.operands.size(); ++i) {
      if (e.operands[i]) arguments[i - 1] = evaluate(*e.operands[i]);
    }
    run_.at_line(e.line);
    if (e.kind == ExpressionKind::method && subject.is_undefined()) {
      run_.fail(fmt::format("cannot call .{}() on {}", e.builtin->name, kind_of(subject)));
    }
    return e.builtin->apply(run_, subject, arguments);
  }

  Value evaluate_format(const Expression& e) {
    const Value subject = evaluate(*e.operands[0]);
    const CallArguments call = evaluate_arguments(e, 1);
    if (e.text == "cycle") return cycled(run_, subject, call.values);
    const FormatArguments arguments{call.values, call.names};
    return e.text == "%" ? format_by_percent(run_, subject, arguments)
                         : format_by_braces(run_, subject, arguments);
  }

  /// Evaluates the arguments of a call, operands[first] and following, and expands * and ** arguments.
  CallArguments evaluate_arguments(const Expression& e, size_t first) {
    CallArguments made;
    std::vector<Value> named;
    const size_t num_positional = e.operands.size() - e.words.size();
    for (size_t i = first; i < e.operands.size(); ++i) {
      Value value = evaluate(*e.operands[i]);
      if (i < num_positional) {
        made.values.push_back(std::move(value));
      } else if (e.words[i - num_positional] == "*") {
        std::ranges::move(items_of(run_, value), std::back_inserter(made.values));
      } else if (e.words[i - num_positional] == "**") {
        for (auto& [key, part] : entries_of(run_, value)) {
          run_.spend(std::ssize(e.words));
          if (!key_of_mapping(key).is_string()) run_.fail("expected strings as keys of the mapping after **");
          if (std::ranges::find(e.words, key) != e.words.end()) fail_duplicate_argument(run_, e.text, key);
          made.names.emplace_back(key);
          named.push_back(std::move(part));
        }
      } else {
        made.names.push_back(e.words[i - num_positional]);
        named.push_back(std::move(value));
      }
    }
    run_.at_line(e.line);
    std::ranges::move(named, std::back_inserter(made.values));
    return made;
  }

  /// Calls a macro, caller() or a recursive loop. `block`: the {% call %} block that contains the call and
  /// becomes caller(); or null.
  Value call(const Expression& e, const Statement* block = nullptr) {
    const Value callee = lookup(e.text);
    const Loop* loop = callee.loop();
    if (loop != nullptr && loop->recursive == nullptr)
      run_.fail(
          fmt::format("{}() calls a loop that is not recursive; write {{% for ... recursive %}}", e.text));
    if (loop == nullptr && callee.macro() == nullptr)
      run_.fail(
          e.text == "caller"
              ? "caller() works only in a macro that a {% call %} block calls"
              : fmt::format("the function {}() is not supported, and no macro of that name is defined here",
                            e.text));
    const CallArguments arguments = evaluate_arguments(e, 0);
    if (++calls_ > kMaxCalls) run_.fail("macros or recursive loops call each other too deep");
    Value text =
        loop != nullptr ? call_loop(*loop, arguments, block) : call_macro(*callee.macro(), arguments, block);
    --calls_;
    return text;
  }

  Value call_loop(const Loop& loop, const CallArguments& arguments, const Statement* block) {
    if (arguments.values.size() != 1 || !arguments.names.empty() || block != nullptr)
      run_.fail("a recursive loop is called with one list, as in loop(item.children)");
    return captured([&] { execute_loop(*loop.recursive, arguments.values[0], loop.scope, loop.depth + 1); });
  }

  Value call_macro(const Macro& macro, const CallArguments& arguments, const Statement* block) {
    Variables variables = bind(run_, *macro.statement, arguments);
    if (block != nullptr)
      pass_caller(run_, *macro.statement, variables, Value::of(Macro{block, scopes_.here()}));
    scopes_.open(run_, macro.scope, std::move(variables));
    fill_presets(*macro.statement);
    Value text = captured([&] { execute(macro.statement->body); });
    scopes_.close();
    return text;
  }

  void fill_presets(const Statement& macro) {
    for (const Parameter& parameter : macro.parameters) {
      if (scopes_.variables().contains(parameter.name)) continue;
      scopes_.set(parameter.name, parameter.default_value ? evaluate(*parameter.default_value)
                                                          : Value::undefined(parameter.name));
    }
    if (macro.special.caller) scopes_.variables().try_emplace("caller", Value::undefined("caller"));
  }

  /// Increments the recursion depth of the evaluator while it is in scope; throws a UserError at the limit.
  class Level {
   public:
    explicit Level(Evaluator& evaluator) : evaluator_(evaluator) {
      if (++evaluator_.depth_ > kMaxStatementDepth) evaluator_.run_.fail("the template is nested too deep");
    }
    ~Level() { --evaluator_.depth_; }

   private:
    Evaluator& evaluator_;
  };

  Run run_;
  const Json& variables_;
  Rendered out_;
  std::deque<Namespace> namespaces_;  ///< kept until rendering ends: they may refer to each other
  Scopes scopes_;
  int depth_ = 0;
  int calls_ = 0;
};

}  // namespace
}  // namespace jinja

Template::Template(std::string_view source, std::string name)
    : program_(jinja::parse(source, std::move(name))) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Rendered Template::render(const Json& variables, const RenderOptions& options) const {
  HEARTH_CHECK(variables.is_object());
  return jinja::Evaluator(*program_, variables, options).render(program_->body);
}

bool Template::asks_date() const { return program_->source.find("strftime_now") != std::string::npos; }
bool Template::marks_generation() const { return program_->marks_generation; }
const std::string& Template::name() const { return program_->name; }
const std::string& Template::source() const { return program_->source; }

}  // namespace hearth::text
