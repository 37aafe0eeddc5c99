#include "ir/verify.h"

#include <algorithm>

#include "base/error.h"
#include "ir/graph.h"
#include "ir/text.h"

namespace hearth::ir {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, std::string_view after)
      : graph_(graph), after_(after), known_(graph.values.size(), 0), dead_(graph.values.size(), 0) {}

  void run() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      known_[i] = graph_.values[i].producer == kNone && graph_.values[i].role != Role::activation;
    }
    for (current_ = 0; current_ < graph_.nodes.size(); ++current_) check_node(graph_.nodes[current_]);
    check_memories();
    for (const ValueId id : graph_.outputs) {
      if (!in_range(id) || !known_[static_cast<size_t>(id)]) fail("a graph output is never computed");
    }
  }

 private:
  bool in_range(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < graph_.values.size(); }

  void check_node(const Node& node) {
    if (const std::string fault = node.op->inputs_error(node.inputs); !fault.empty()) fail(fault);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (const char* fault = input_fault(node.inputs[i])) fail_input(node, i, fault);
    }
    check_types(node);
    for (size_t k = 0; k < node.outputs.size(); ++k) check_output(node, k);
  }

  const char* input_fault(ValueId id) const {
    if (id == kNone) return nullptr;
    if (!in_range(id)) return "has an id that is out of range";
    if (known_[static_cast<size_t>(id)] == 0) return "is read before it is computed";
    return dead_[static_cast<size_t>(id)] != 0 ? "is read after its bytes were overwritten" : nullptr;
  }

  void check_memories() {
    const std::vector<char> host = on_host(graph_);
    for (current_ = 0; current_ < graph_.nodes.size(); ++current_) {
      const Node& node = graph_.nodes[current_];
      if (node.op->transfer != Transfer::none) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId id = node.inputs[i];
        if (id != kNone && host[static_cast<size_t>(id)] != 0) fail_input(node, i, "is in host memory");
      }
    }
  }

  void check_types(const Node& node) {
    const std::vector<Type> in = graph_.input_types(node);
    const Inferred inferred = node.op->infer({.attrs = node.attrs, .in = in, .out = {}});
    if (!inferred.error.empty()) fail(inferred.error);
    if (inferred.out.size() != node.outputs.size())
      fail("the number of outputs differs from what the op infers");
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (!in_range(node.outputs[k])) fail("an output id is out of range");
      if (graph_.type(node.outputs[k]) != inferred.out[k])
        fail("an output's type differs from what the op infers");
    }
  }

  void check_output(const Node& node, size_t k) {
    const auto index = static_cast<size_t>(node.outputs[k]);
    if (known_[index] != 0) fail("an output is computed twice");
    if (graph_.values[index].producer != static_cast<NodeId>(current_))
      fail("an output names another producer");
    known_[index] = 1;
    const auto& writes = node.op->writes;
    if (k < writes.size() && writes[k] >= 0) {
      dead_[static_cast<size_t>(node.inputs[static_cast<size_t>(writes[k])])] = 1;
    }
  }

  [[noreturn]] void fail_input(const Node& node, size_t input, std::string_view what) const {
    fail(fmt::format("{}: input '{}' {}", node.op->name, node.op->input_name(input), what));
  }
  [[noreturn]] void fail(std::string_view what) const {
    const size_t begin = current_ < 3 ? 0 : current_ - 3;
    const size_t end = std::min(graph_.nodes.size(), current_ + 3);
    std::string around;
    for (size_t i = begin; i < end; ++i) {
      around += (i == current_ ? "> " : "  ") + print_node(graph_, static_cast<NodeId>(i)) + "\n";
    }
    internal_error("after {}: {}\n{}", after_, what, around);
  }

  const Graph& graph_;
  std::string_view after_;
  std::vector<char> known_;
  std::vector<char> dead_;
  size_t current_ = 0;
};

}  // namespace

void verify(const Graph& graph, std::string_view after) { Verifier(graph, after).run(); }

}  // namespace hearth::ir
