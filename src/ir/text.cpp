#include "ir/text.h"

#include <charconv>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "ir/graph.h"

namespace hearth::ir {
namespace {

/// Characters that occur in printed real numbers but not in integers: the decimal point, e of the exponent,
/// and letters of inf and nan.
constexpr std::string_view kRealMarks = ".ein";

std::string print_number(int64_t value) { return std::to_string(value); }
std::string print_number(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(kRealMarks) == std::string::npos ? text + ".0" : text;
}

template <typename T>
std::string print_list(const std::vector<T>& items) {
  std::string text = "[";
  for (const T item : items) text += (text.size() > 1 ? ", " : "") + print_number(item);
  return text + "]";
}

std::string print_attr(const Attr& attr) {
  if (const auto* integer = std::get_if<int64_t>(&attr)) return print_number(*integer);
  if (const auto* real = std::get_if<double>(&attr)) return print_number(*real);
  if (const auto* text = std::get_if<std::string>(&attr)) return fmt::format("\"{}\"", *text);
  if (const auto* reals = std::get_if<std::vector<double>>(&attr)) return print_list(*reals);
  return print_list(std::get<std::vector<int64_t>>(attr));
}

std::string print_type(const Type& type) {
  return fmt::format("{}{}", dtype_name(type.dtype), to_string(type.shape));
}

/// A parser for one line of the text form.
class Line {
 public:
  explicit Line(std::string_view text) : text_(text) {}

  bool done() {
    skip_spaces();
    return text_.empty();
  }
  bool accept(std::string_view token) {
    skip_spaces();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) user_error("expected '{}' before '{}'", token, text_.substr(0, 20));
  }
  std::string word() {
    skip_spaces();
    size_t length = 0;
    while (length < text_.size() &&
           (isalnum(static_cast<unsigned char>(text_[length])) != 0 || text_[length] == '_')) {
      ++length;
    }
    if (length == 0) user_error("expected a name before '{}'", text_.substr(0, 20));
    return take(length);
  }
  std::string quoted() {
    expect("\"");
    const size_t end = text_.find('"');
    if (end == std::string_view::npos) user_error("expected a closing quote");
    std::string result = take(end);
    expect("\"");
    return result;
  }
  int64_t integer() { return number<int64_t>(); }
  template <typename T>
  std::vector<T> list() {
    std::vector<T> items;
    expect("[");
    while (!accept("]")) {
      if (!items.empty()) expect(",");
      items.push_back(number<T>());
    }
    return items;
  }
  Type type() {
    const std::string name = word();
    const auto dtype = dtype_from_name(name);
    if (!dtype) user_error("unknown dtype '{}'", name);
    return {.dtype = *dtype, .shape = Shape(std::span<const int64_t>(list<int64_t>()))};
  }
  Attr attr() {
    skip_spaces();
    if (text_.starts_with('"')) return quoted();
    if (text_.starts_with('[')) {
      if (is_real(text_.find(']'))) return list<double>();
      return list<int64_t>();
    }
    if (is_real(text_.find_first_of(",}"))) return number<double>();
    return integer();
  }
  std::string rest() {
    skip_spaces();
    return std::string(text_);
  }

 private:
  bool is_real(size_t length) const {
    return text_.substr(0, length).find_first_of(kRealMarks) != std::string_view::npos;
  }
  template <typename T>
  T number() {
    T value = 0;
    skip_spaces();
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc()) user_error("expected a number before '{}'", text_.substr(0, 20));
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return value;
  }
  std::string take(size_t length) {
    std::string result(text_.substr(0, length));
    text_.remove_prefix(length);
    return result;
  }
  void skip_spaces() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\r')) text_.remove_prefix(1);
  }

  std::string_view text_;
};

class Parser {
 public:
  explicit Parser(const std::function<const OpDef*(std::string_view)>& find_op) : find_op_(find_op) {}

  void parse_line(Line line) {
    if (line.done()) return;
    for (const Role role : {Role::input, Role::scalar, Role::parameter, Role::state, Role::frozen,
                            Role::remote, Role::carried}) {
      if (line.accept(role_name(role))) return parse_leaf(line, role);
    }
    if (line.accept("return")) {
      while (!line.done()) {
        graph_.outputs.push_back(value_ref(line));
        line.accept(",");
      }
      return;
    }
    parse_node(line);
  }

  Graph take() { return std::move(graph_); }

 private:
  void parse_leaf(Line& line, Role role) {
    line.expect("%");
    const int64_t id = line.integer();
    std::string name = line.quoted();
    line.expect(":");
    define(id, graph_.add_value(std::move(name), line.type(), role));
  }

  void parse_node(Line& line) {
    std::vector<int64_t> out_ids;
    do {
      line.expect("%");
      out_ids.push_back(line.integer());
    } while (line.accept(","));
    line.expect("=");
    const std::string name = line.word();
    const OpDef* op = find_op_(name);
    if (op == nullptr) user_error("unknown op '{}'", name);
    std::vector<ValueId> inputs = parse_inputs(line);
    if (const std::string fault = op->inputs_error(inputs); !fault.empty()) user_error("{}", fault);
    Attrs attrs = parse_attrs(line);
    finish_node(line, *op, std::move(inputs), std::move(attrs), out_ids);
  }

  std::vector<ValueId> parse_inputs(Line& line) {
    std::vector<ValueId> inputs;
    line.expect("(");
    while (!line.accept(")")) {
      if (!inputs.empty()) line.expect(",");
      inputs.push_back(line.accept("none") ? kNone : value_ref(line));
    }
    return inputs;
  }

  Attrs parse_attrs(Line& line) {
    Attrs attrs;
    if (!line.accept("{")) return attrs;
    while (!line.accept("}")) {
      const std::string key = line.word();
      line.expect("=");
      attrs.set(key, line.attr());
      line.accept(",");
    }
    return attrs;
  }

  void finish_node(Line& line, const OpDef& op, std::vector<ValueId> inputs, Attrs attrs,
                   const std::vector<int64_t>& out_ids) {
    std::vector<Type> types;
    line.expect(":");
    do types.push_back(line.type());
    while (line.accept(","));
    std::string name = line.accept("#") ? line.rest() : "";
    const std::vector<ValueId> out = graph_.add(op, std::move(inputs), std::move(attrs), std::move(name));
    if (out.size() != out_ids.size())
      user_error("{} has {} outputs, but the text names {}", op.name, out.size(), out_ids.size());
    for (size_t k = 0; k < out.size(); ++k) {
      if (k >= types.size() || graph_.type(out[k]) != types[k]) {
        user_error("output {} is {}, but the text states another type", k, print_type(graph_.type(out[k])));
      }
      define(out_ids[k], out[k]);
    }
  }

  void define(int64_t id, ValueId value) {
    if (!ids_.emplace(id, value).second) user_error("%{} is defined twice", id);
  }

  ValueId value_ref(Line& line) {
    line.expect("%");
    const int64_t id = line.integer();
    const auto found = ids_.find(id);
    if (found == ids_.end()) user_error("%{} is not defined yet", id);
    return found->second;
  }

  const std::function<const OpDef*(std::string_view)>& find_op_;
  std::map<int64_t, ValueId> ids_;
  Graph graph_;
};

void parse_numbered(Parser& parser, std::string_view text, int number) {
  try {
    parser.parse_line(Line(text));
  } catch (const UserError& error) {
    user_error("line {}: {}", number, error.what());
  } catch (const InternalError& error) {
    // For a graph that a pass created, a missing attribute is an internal error; here it is an error in the
    // text.
    user_error("line {}: {}", number, error.what());
  }
}

}  // namespace

std::string print(const Attrs& attrs) {
  std::string text;
  for (const auto& [key, attr] : attrs.entries()) {
    text += fmt::format("{}{}={}", text.empty() ? " {" : ", ", key, print_attr(attr));
  }
  return text.empty() ? text : text + "}";
}

std::string print_node(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  std::string text;
  for (const ValueId out : node.outputs) text += fmt::format("{}%{}", text.empty() ? "" : ", ", out);
  text += fmt::format(" = {}(", node.op->name);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId in = node.inputs[i];
    text += (i > 0 ? ", " : "") + (in == kNone ? std::string("none") : fmt::format("%{}", in));
  }
  text += ")";
  text += print(node.attrs);
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    text += (k == 0 ? " : " : ", ") + print_type(graph.type(node.outputs[k]));
  }
  return node.name.empty() ? text : text + "  # " + node.name;
}

std::string print(const Graph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (value.producer != kNone || value.role == Role::activation) continue;
    text += fmt::format("{} %{} \"{}\" : {}\n", role_name(value.role), i, value.name, print_type(value.type));
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) text += print_node(graph, static_cast<NodeId>(i)) + "\n";
  if (graph.outputs.empty()) return text;
  text += "return";
  for (size_t i = 0; i < graph.outputs.size(); ++i)
    text += fmt::format("{} %{}", i > 0 ? "," : "", graph.outputs[i]);
  return text + "\n";
}

Graph parse(std::string_view text, const std::function<const OpDef*(std::string_view)>& find_op) {
  Parser parser(find_op);
  int number = 0;
  while (!text.empty()) parse_numbered(parser, take_line(text), ++number);
  return parser.take();
}

}  // namespace hearth::ir
