#include <algorithm>

#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "nn/module.h"

namespace hearth::nn {
namespace {

using ir::ValueId;

bool is_named(std::string_view module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

bool is_among(std::string_view module, const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](const std::string& name) { return is_named(module, name); });
}

void check_names(const char* key, const std::vector<std::string>& names,
                 const std::vector<std::string>& modules) {
  for (const std::string& name : names) {
    const auto has_name = [&](const std::string& module) { return is_named(module, name); };
    if (std::ranges::any_of(modules, has_name)) continue;
    const std::vector<std::string> known = short_names(modules);
    user_error("adapter.{1}: the model has no module '{2}'; its modules are named {0}{3}",
               fmt::join(known, ", "), key, name, did_you_mean(name.substr(name.rfind('.') + 1), known));
  }
}

}  // namespace

Adapter::Change Adapter::change_of(std::string_view module) const {
  if (rule) return rule(module);
  if (is_among(module, whole)) return {.whole = true};
  return {.rank = targets.empty() || is_among(module, targets) ? rank : 0, .scale = scale};
}

void refuse_transposed(std::string_view file) {
  user_error(
      "{}: \"fan_in_fan_out\" is true, but the files of this model store weights as [out, in]; set it to "
      "false",
      file);
}

std::vector<std::string> short_names(const std::vector<std::string>& modules) {
  std::vector<std::string> names;
  for (const std::string& module : modules) {
    std::string name = module.substr(module.rfind('.') + 1);
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

bool Builder::is_frozen(std::string_view tensor_name) {
  if (adapter_.rank == 0) return false;
  const std::string module(tensor_name.substr(0, tensor_name.rfind('.')));
  if (modules_.empty() || modules_.back() != module) modules_.push_back(module);
  return !adapter_.change_of(module).whole;
}

ValueId Builder::quantized_linear(std::string_view name, ValueId in, const FileLayout& layout) {
  const int64_t rows = layout.file_shape[0], columns = layout.file_shape[1];
  Tensor made{
      .name = full(name, "weight"), .layout = layout, .trainable = false, .quantized = adapter_.quantized};
  std::vector<ValueId> inputs = {in};
  for (const ops::QuantizedPart& part : ops::quantized_parts(made.quantized, rows, columns))
    inputs.push_back(graph_.add_value(made.name + std::string(part.suffix), part.type, ir::Role::frozen));
  made.value = inputs[1];
  const ir::Attrs attrs = {
      {"format", std::string(ops::quantization_name(made.quantized))}, {"rows", rows}, {"columns", columns}};
  tensors_.push_back(std::move(made));
  return apply("quantized_linear", inputs, attrs, name);
}

ValueId Builder::adapt(std::string_view name, ValueId in, ValueId out, FileLayout layout, int64_t out_patch) {
  linears_.push_back(full(name));
  const std::string& module = linears_.back();
  const Adapter::Change change = adapter_.change_of(module);
  if (change.whole || change.rank == 0) return out;
  const int64_t in_features = graph_.type(in).shape.back();
  const Shape shape_a{change.rank, in_features};
  const Shape shape_b{graph_.type(out).shape.back(), change.rank};
  std::vector<int64_t> view(layout.memory_view.begin(), layout.memory_view.end());
  view[0] = change.rank;
  layout.memory_view = Shape(view);
  layout.file_shape = shape_a;
  // Initializes as PEFT: A like torch's default for linear layers, B with zeros.
  const Init uniform{.kind = Init::Kind::uniform, .scale = 1.0 / std::sqrt(static_cast<double>(in_features))};
  const auto add = [&](const char* part, const Shape& shape, Init init, FileLayout order) {
    Tensor made{.name = module + part, .init = init, .layout = std::move(order), .adapter = true};
    return add_tensor(std::move(made), {.dtype = DType::f32, .shape = shape}, ir::Role::parameter);
  };
  const ValueId a = add(".lora_A.weight", shape_a, uniform, layout);
  const ValueId b = add(".lora_B.weight", shape_b, {}, layout_of_patches(shape_b, out_patch));
  const ir::Attrs attrs = {{"transpose_a", int64_t{0}}, {"transpose_b", int64_t{1}}};
  ValueId low = apply("matmul", {dropout(name, in, adapter_.dropout), a}, attrs, name);
  if (change.scale != 1) low = apply("scale", {low}, {{"factor", change.scale}}, name);
  return apply("add", {apply("matmul", {low, b}, attrs, name), out}, {}, name);
}

void Builder::check_adapter() const {
  if (adapter_.rank == 0) return;
  if (adapter_.rule) return check_rule();
  check_names("targets", adapter_.targets, linears_);
  check_names("modules_to_save", adapter_.whole, modules_);
}

void Builder::check_rule() const {
  const auto is_turned = [](const Tensor& tensor) { return is_transposed(tensor.layout); };
  if (adapter_.transposed && std::ranges::none_of(tensors_, is_turned)) refuse_transposed(adapter_.rule_name);
  const auto is_adapted = [&](const std::string& module) { return adapter_.change_of(module).rank > 0; };
  if (std::ranges::none_of(linears_, is_adapted)) {
    user_error("{}: target_modules names no linear layer of the model; its linear layers are {}",
               adapter_.rule_name, fmt::join(short_names(linears_), ", "));
  }
  if (adapter_.targets.empty()) return;
  for (const std::string& module : modules_) {
    const bool is_linear = std::ranges::find(linears_, module) != linears_.end();
    if (is_linear || !is_adapted(module)) continue;
    user_error("{}: target_modules must name linear layers of the model ({}), but '{}' is not one",
               adapter_.rule_name, fmt::join(short_names(linears_), ", "), module);
  }
}

}  // namespace hearth::nn
