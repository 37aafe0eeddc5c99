#include "nn/module.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "ir/op_def.h"
#include "ops/matmul/matmul.h"
#include "ops/op_list.h"

namespace hearth::nn {
namespace {

using ir::ValueId;

FileLayout same_layout(const Shape& shape) {
  std::vector<int> axes(static_cast<size_t>(shape.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return {.memory_view = shape, .file_axes = axes, .file_shape = shape};
}

struct Walk {
  int64_t size, memory_stride, file_stride;
};

/// Calls copy(memory index, file index) for each element whose index along the last axis in memory is in
/// `last`. For cache efficiency the inner loop runs over 16 consecutive elements in memory, which are in 16
/// sequential streams of the file.
template <typename Copy>
void for_each_element(const FileLayout& layout, Range last, Copy copy) {
  const int rank = layout.memory_view.rank();
  std::vector<Walk> walks(static_cast<size_t>(rank));
  int64_t stride = 1;
  for (int axis = rank - 1; axis >= 0; stride *= layout.memory_view[axis--]) {
    walks[static_cast<size_t>(axis)] = {layout.memory_view[axis], stride, 1};
  }
  std::vector<Walk> outer;  // sorted by file stride
  stride = 1;
  for (int j = rank - 1; j >= 0; --j) {
    Walk& walk = walks[static_cast<size_t>(layout.file_axes[static_cast<size_t>(j)])];
    walk.file_stride = stride;
    stride *= walk.size;
    if (layout.file_axes[static_cast<size_t>(j)] != rank - 1) outer.insert(outer.begin(), walk);
  }
  const Walk inner = rank == 0 ? Walk{1, 1, 1} : walks.back();
  const int64_t block = inner.file_stride == 1 ? inner.size : 16;
  for (int64_t begin = last.begin; begin < last.end; begin += block) {
    const int64_t count = std::min(block, last.end - begin);
    std::vector<int64_t> at(outer.size(), 0);
    int64_t memory = begin;
    int64_t file = begin * inner.file_stride;
    for (size_t j = 0; j != SIZE_MAX;) {
      for (int64_t i = 0; i < count; ++i) copy(memory + i, file + i * inner.file_stride);
      for (j = outer.size() - 1; j != SIZE_MAX; --j) {
        memory += outer[j].memory_stride;
        file += outer[j].file_stride;
        if (++at[j] < outer[j].size) break;
        memory -= outer[j].memory_stride * outer[j].size;
        file -= outer[j].file_stride * outer[j].size;
        at[j] = 0;
      }
    }
  }
}

int64_t last_axis(const FileLayout& layout) {
  return layout.memory_view.rank() == 0 ? 1 : layout.memory_view.back();
}

/// Converts two random 32-bit words to two standard normal numbers (Box-Muller).
void normal_pair(uint32_t first, uint32_t second, float out[2]) {
  const float radius = std::sqrt(-2.0F * std::log(1.0F - unit_float(first)));
  const float angle = 2.0F * std::numbers::pi_v<float> * unit_float(second);
  out[0] = radius * std::cos(angle);
  out[1] = radius * std::sin(angle);
}

/// Converts four random words to four numbers: standard normal, or uniform in [-1, 1).
std::array<float, 4> draw(Init::Kind kind, const std::array<uint32_t, 4>& words) {
  std::array<float, 4> values{};
  if (kind == Init::Kind::normal) {
    normal_pair(words[0], words[1], values.data());
    normal_pair(words[2], words[3], values.data() + 2);
  } else {
    for (size_t i = 0; i < 4; ++i) values[i] = -1 + 2 * unit_float(words[i]);
  }
  return values;
}

/// Draws the initial values of a tensor, in the element order of the file.
void draw_file(const Tensor& tensor, uint64_t seed, std::span<float> file, ThreadPool& threads) {
  const auto scale = static_cast<float>(tensor.init.scale);
  const int64_t count = std::ssize(file);
  if (tensor.init.kind == Init::Kind::constant) return std::fill(file.begin(), file.end(), scale);
  threads.parallel_for((count + 3) / 4, 4096, [&](Range blocks) {
    const uint64_t name = hash64(tensor.name);
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const auto values =
          draw(tensor.init.kind, philox4x32(seed, {static_cast<uint32_t>(block), static_cast<uint32_t>(name),
                                                   static_cast<uint32_t>(name >> 32), 0}));
      const int64_t first = 4 * block;
      for (int64_t i = first; i < std::min(first + 4, count); ++i)
        file[static_cast<size_t>(i)] = scale * values[static_cast<size_t>(i - first)];
    }
  });
}

}  // namespace

bool is_transposed(const FileLayout& layout) { return layout.file_axes == std::vector<int>{1, 0}; }

bool is_in_file_order(const FileLayout& layout) { return std::ranges::is_sorted(layout.file_axes); }

void to_file_order(const FileLayout& layout, const float* memory, float* file) {
  for_each_element(layout, {0, last_axis(layout)}, [&](int64_t m, int64_t f) { file[f] = memory[m]; });
}

void from_file_order(const FileLayout& layout, const float* file, float* memory) {
  for_each_element(layout, {0, last_axis(layout)}, [&](int64_t m, int64_t f) { memory[m] = file[f]; });
}

FileLayout layout_of_patches(const Shape& shape, int64_t patch) {
  if (patch == 0) return same_layout(shape);
  const int64_t channels = shape[0] / (patch * patch);
  if (shape.rank() == 1)
    return {.memory_view = {channels, patch, patch}, .file_axes = {1, 2, 0}, .file_shape = shape};
  return {.memory_view = {channels, patch, patch, shape[1]}, .file_axes = {1, 2, 0, 3}, .file_shape = shape};
}

void initialize(const Tensor& tensor, uint64_t seed, std::span<float> memory, ThreadPool& threads) {
  if (is_in_file_order(tensor.layout)) return draw_file(tensor, seed, memory, threads);
  std::vector<float> file(memory.size());
  draw_file(tensor, seed, file, threads);
  const int64_t grain =
      std::max<int64_t>(16, 16384 * last_axis(tensor.layout) / std::max<int64_t>(1, std::ssize(file)));
  threads.parallel_for(last_axis(tensor.layout), grain, [&](Range range) {
    for_each_element(tensor.layout, range, [&](int64_t m, int64_t f) {
      memory[static_cast<size_t>(m)] = file[static_cast<size_t>(f)];
    });
  });
}

bool is_under(std::string_view tensor, std::string_view module) {
  if (!tensor.starts_with(module)) return false;
  return tensor.size() == module.size() || module.ends_with('.') || tensor[module.size()] == '.';
}

bool Builder::is_in_frozen_module(std::string_view tensor_name) const {
  return std::ranges::any_of(frozen_modules_,
                             [&](const std::string& module) { return is_under(tensor_name, module); });
}

Builder::Scope::Scope(Builder& builder, std::string_view name)
    : builder_(builder), length_(builder.prefix_.size()) {
  builder_.prefix_ += std::string(name) + ".";
}

Builder::TeacherScope::TeacherScope(Builder& builder, ops::Quantization quantized)
    : builder_(builder), prefix_(kTeacherPrefix), adapter_{.quantized = quantized} {
  exchange();
}

void Builder::TeacherScope::exchange() {
  std::swap(builder_.mode_, mode_);
  std::swap(builder_.prefix_, prefix_);
  std::swap(builder_.adapter_, adapter_);
  std::swap(builder_.tensors_, builder_.teacher_tensors_);
  builder_.is_teacher_ = !builder_.is_teacher_;
}

std::string Builder::full(std::string_view name, std::string_view part) const {
  return prefix_ + std::string(name) + (part.empty() ? "" : "." + std::string(part));
}

ValueId Builder::add_tensor(Tensor tensor, ir::Type type, ir::Role role) {
  tensor.value = graph_.add_value(tensor.name, type, role);
  tensor.trainable = role == ir::Role::parameter;
  tensors_.push_back(std::move(tensor));
  return tensors_.back().value;
}

ValueId Builder::tensor(const std::string& name, const Shape& shape, Init init, FileLayout layout,
                        bool trainable) {
  const auto shared = std::ranges::find(tensors_, name, &Tensor::name);
  if (shared != tensors_.end()) {
    HEARTH_CHECK(graph_.type(shared->value).shape == shape);
    return shared->value;
  }
  Tensor made{.name = name, .init = init, .layout = std::move(layout)};
  const ir::Role role = is_teacher_                               ? ir::Role::frozen
                        : !trainable || is_in_frozen_module(name) ? ir::Role::state
                        : is_frozen(name)                         ? ir::Role::frozen
                                                                  : ir::Role::parameter;
  return add_tensor(std::move(made), {.dtype = DType::f32, .shape = shape}, role);
}

ValueId Builder::plain_tensor(const std::string& name, const Shape& shape, Init init, bool trainable) {
  return tensor(name, shape, init, same_layout(shape), trainable);
}

ValueId Builder::apply(std::string_view op, std::vector<ValueId> inputs, ir::Attrs attrs,
                       std::string_view name) {
  return graph_.add(*ops::find_op(op), std::move(inputs), std::move(attrs), full(name))[0];
}

ValueId Builder::input(std::string_view name, ir::Type type) {
  return graph_.add_value(std::string(name), type, ir::Role::input);
}

ValueId Builder::conv_weight(std::string_view name, const Shape& shape, Init init, bool space_to_depth) {
  FileLayout layout{.memory_view = shape,
                    .file_axes = {3, 2, 0, 1},
                    .file_shape = {shape[3], shape[2], shape[0], shape[1]}};
  if (space_to_depth) {
    const int64_t height = shape[0] / 2, width = shape[1] / 2;
    layout = {.memory_view = {height, 2, width, 2, shape[2], shape[3]},
              .file_axes = {5, 3, 1, 4, 0, 2},
              .file_shape = {shape[3], 4 * shape[2], height, width}};
  }
  return tensor(full(name, "weight"), shape, init, layout, true);
}

ValueId Builder::conv(std::string_view name, ValueId in, const Conv& options) {
  const int64_t in_channels = graph_.type(in).shape.back();
  if (options.groups < 1 || in_channels % options.groups != 0) {
    user_error("expected a number of groups that divides the {} input channels of '{}', got {}", in_channels,
               full(name), options.groups);
  }
  const int64_t taps = options.kernel * options.kernel, group_in = in_channels / options.groups;
  const Init uniform{.kind = Init::Kind::uniform,
                     .scale = 1.0 / std::sqrt(static_cast<double>(group_in * taps))};
  const Init kaiming{.kind = Init::Kind::normal,
                     .scale = std::sqrt(2.0 / static_cast<double>(options.out_channels * taps))};
  const Init normal{.kind = Init::Kind::normal, .scale = options.normal};
  const ValueId weight = conv_weight(name, {options.kernel, options.kernel, group_in, options.out_channels},
                                     options.normal > 0        ? normal
                                     : options.kaiming_fan_out ? kaiming
                                                               : uniform,
                                     options.space_to_depth);
  ir::Attrs attrs = {{"stride", options.stride}, {"padding", options.padding}};
  if (options.dilation != 1) attrs.set("dilation", options.dilation);
  if (options.groups != 1) attrs.set("groups", options.groups);
  const ValueId out = apply("conv2d", {in, weight}, attrs, name);
  if (!options.bias) return out;
  const Init start = options.bias_init    ? Init{.scale = *options.bias_init}
                     : options.normal > 0 ? Init{}
                                          : uniform;
  const ValueId bias = plain_tensor(full(name, "bias"), {options.out_channels}, start);
  return apply("bias_add", {out, bias}, {}, name);
}

ValueId Builder::conv_transpose(std::string_view name, ValueId in, const ConvTranspose& options) {
  const Shape shape = graph_.type(in).shape;
  const int64_t taps = options.kernel * options.kernel;
  const Init uniform{.kind = Init::Kind::uniform,
                     .scale = 1.0 / std::sqrt(static_cast<double>(options.out_channels * taps))};
  const ValueId weight =
      conv_weight(name, {options.kernel, options.kernel, options.out_channels, shape.back()}, uniform);
  const auto extent = [&](int64_t given, int64_t length) {
    return given > 0 ? given : (length - 1) * options.stride - 2 * options.padding + options.kernel;
  };
  const ValueId out = apply("conv2d_grad_input", {in, weight},
                            {{"stride", options.stride},
                             {"padding", options.padding},
                             {"in_h", extent(options.out_h, shape[1])},
                             {"in_w", extent(options.out_w, shape[2])}},
                            name);
  if (!options.bias) return out;
  return apply("bias_add", {out, plain_tensor(full(name, "bias"), {options.out_channels}, uniform)}, {},
               name);
}

ValueId Builder::batch_norm(std::string_view name, ValueId in, const BatchNorm& options) {
  const Shape channels{graph_.type(in).shape.back()};
  const bool frozen = options.frozen || is_in_frozen_module(full(name, "weight"));
  const ValueId weight = plain_tensor(full(name, "weight"), channels, {.scale = 1}, !frozen);
  const ValueId bias = plain_tensor(full(name, "bias"), channels, {}, !frozen);
  const ValueId mean = plain_tensor(full(name, "running_mean"), channels, {}, false);
  const ValueId variance = plain_tensor(full(name, "running_var"), channels, {.scale = 1}, false);
  for (Tensor& tensor : tensors_)
    if (tensor.value == mean || tensor.value == variance) tensor.is_running_statistic = !frozen;
  const std::vector<ValueId> inputs = {in, weight, bias, mean, variance};
  if (mode_ == Mode::eval || frozen) return apply("batch_norm_infer", inputs, {{"eps", options.eps}}, name);
  return apply("batch_norm", inputs, {{"momentum", options.momentum}, {"eps", options.eps}}, name);
}

ValueId Builder::group_norm(std::string_view name, ValueId in, int64_t groups, double eps) {
  const Shape channels{graph_.type(in).shape.back()};
  const ValueId weight = plain_tensor(full(name, "weight"), channels, {.scale = 1});
  const ValueId bias = plain_tensor(full(name, "bias"), channels, {});
  return apply("group_norm", {in, weight, bias}, {{"groups", groups}, {"eps", eps}}, name);
}

Init Builder::xavier(int64_t in_features, int64_t out_features) {
  return {.kind = Init::Kind::uniform,
          .scale = std::sqrt(6.0 / static_cast<double>(in_features + out_features))};
}

FileLayout Builder::linear_layout(ValueId in, const Shape& shape, const Linear& options) const {
  if (options.transposed)
    return {.memory_view = shape, .file_axes = {1, 0}, .file_shape = {shape[1], shape[0]}};
  FileLayout layout = layout_of_patches(shape, options.out_patch);
  if (options.file_shape.rank() > 0) layout.file_shape = options.file_shape;
  const ir::NodeId producer = graph_.value(in).producer;
  if (producer != ir::kNone && graph_.node(producer).op->name == "reshape") {
    const Shape& image = graph_.type(graph_.node(producer).inputs[0]).shape;
    if (image.rank() == 4 && shape[1] == image.num_elements() / image[0]) {
      layout = {.memory_view = {shape[0], image[1], image[2], image[3]},
                .file_axes = {0, 3, 1, 2},
                .file_shape = shape};
    }
  }
  return layout;
}

ValueId Builder::linear(std::string_view name, ValueId in, int64_t out_features, const Linear& options) {
  const int64_t in_features = graph_.type(in).shape.back();
  const Init uniform{.kind = Init::Kind::uniform, .scale = 1.0 / std::sqrt(static_cast<double>(in_features))};
  const Init normal{.kind = Init::Kind::normal, .scale = options.normal};
  const Init init = options.start.value_or(options.normal > 0 ? normal : uniform);
  const Shape shape{out_features, in_features};
  FileLayout layout = linear_layout(in, shape, options);
  const bool is_matrix = options.file_shape.rank() == 0 && options.out_patch == 0;
  ValueId out = ir::kNone;
  const bool is_quantized = is_matrix && adapter_.quantized != ops::Quantization::none &&
                            (is_teacher_ || is_frozen(full(name, "weight")));
  if (is_quantized) {
    if (options.transposed) {
      user_error("{0} does not support weights that files store as [in, out], such as '{1}'; remove {0}",
                 is_teacher_ ? "distill.quantize" : "adapter.quantize", full(name));
    }
    out = quantized_linear(name, in, layout);
  } else {
    ValueId weight = tensor(full(name, "weight"), shape, init, layout, true), input = in;
    if (options.is_in_block && rounds(weight)) {
      weight = rounded_weight(name, weight);
      input = rounded_input(name, in);
    }
    ir::Attrs attrs = {{"transpose_a", int64_t{0}}, {"transpose_b", int64_t{1}}};
    if (options.is_in_block && matmul_precision_ != MatmulPrecision::same)
      attrs.set(ops::kOperandPrecision, std::string(name_of(matmul_precision_)));
    out = apply("matmul", {input, weight}, attrs, name);
  }
  if (options.bias) {
    const Init start = options.start || options.normal > 0 ? Init{} : uniform;
    const Shape bias{out_features};
    const ValueId added =
        tensor(full(name, "bias"), bias, start, layout_of_patches(bias, options.out_patch), true);
    out = apply("bias_add", {out, added}, {}, name);
  }
  if (options.transposed || options.out_patch > 0) layout = same_layout(shape);
  return adapter_.rank == 0 ? out : adapt(name, in, out, layout, options.out_patch);
}

ValueId Builder::table(std::string_view name, int64_t num_rows, int64_t size, double normal) {
  const ValueId made =
      plain_tensor(full(name, "weight"), {num_rows, size}, {.kind = Init::Kind::normal, .scale = normal});
  tensors_.back().is_table = true;
  return made;
}

ValueId Builder::rms_norm(std::string_view name, ValueId in, double eps, double offset) {
  const ValueId weight =
      plain_tensor(full(name, "weight"), {graph_.type(in).shape.back()}, {.scale = 1 - offset});
  return apply("rms_norm", {in, weight}, {{"eps", eps}, {"offset", offset}}, name);
}

ValueId Builder::layer_norm(std::string_view name, ValueId in, double eps) {
  const Shape shape = {graph_.type(in).shape.back()};
  const ValueId weight = plain_tensor(full(name, "weight"), shape, {.scale = 1});
  const ValueId bias = plain_tensor(full(name, "bias"), shape, {.scale = 0});
  return apply("layer_norm", {in, weight, bias}, {{"eps", eps}}, name);
}

ValueId Builder::memory(std::string_view name, const Shape& shape) {
  return graph_.add_value(full(name), {.dtype = DType::f32, .shape = shape}, ir::Role::state);
}

ValueId Builder::relu(ValueId in) { return apply("relu", {in}, {}, "relu"); }
ValueId Builder::add(ValueId a, ValueId b) { return apply("add", {a, b}, {}, "add"); }

ValueId Builder::concat(std::vector<ValueId> values) {
  return apply("concat_last", std::move(values), {}, "concat");
}

ValueId Builder::counter() {
  const auto existing = graph_.find("counter");
  return existing ? *existing
                  : graph_.add_value("counter", {.dtype = DType::i64, .shape = {2}}, ir::Role::input);
}

bool Builder::rounds(ValueId weight) const {
  const ir::Role role = graph_.value(weight).role;
  const bool is_base = role == ir::Role::frozen && !is_teacher_;
  return rounding_.fits(graph_.type(weight).shape[1]) && (role == ir::Role::parameter || is_base);
}

ValueId Builder::round_groups(std::string_view name, ValueId value, GroupFormat format, int64_t group) {
  std::vector<ValueId> inputs = {value};
  if (mode_ == Mode::train && rounding_.first_step > 0) inputs.push_back(counter());
  return apply("fake_quantize_groups", inputs,
               {{"format", std::string(name_of(format))},
                {"group", group > 0 ? group : graph_.type(value).shape.back()},
                {"first_step", rounding_.first_step}},
               name);
}

ValueId Builder::rounded_weight(std::string_view name, ValueId weight) {
  has_rounded_ = true;
  const SchemeFormats formats = rounding_.formats();
  if (formats.blocks == BlockFormat::none) return round_groups(name, weight, formats.weights, formats.group);
  std::vector<ValueId> inputs = {weight};
  if (mode_ == Mode::train && rounding_.first_step > 0) inputs.push_back(counter());
  return apply("fake_quantize", inputs,
               {{"format", std::string(name_of(formats.blocks))}, {"first_step", rounding_.first_step}},
               name);
}

ValueId Builder::rounded_input(std::string_view name, ValueId in) {
  const GroupFormat format = rounding_.formats().inputs;
  if (format == GroupFormat::none) return in;
  if (in != last_input_) {
    last_rounded_input_ = round_groups(name, in, format, 0);
    last_input_ = in;
  }
  return last_rounded_input_;
}

void Builder::check_rounding() const {
  if (rounding_.scheme == QatScheme::none || has_rounded_) return;
  user_error(
      "quantize.qat={} rounds no layer, because no linear layer has a multiple of {} inputs; {}remove "
      "quantize.qat",
      name_of(rounding_.scheme), std::max<int64_t>(1, rounding_.formats().group),
      has_group(rounding_.scheme) ? "set a smaller quantize.group, or " : "");
}

ValueId Builder::dropout(std::string_view name, ValueId in, double rate) {
  if (mode_ == Mode::eval || rate == 0) return in;
  return apply("dropout", {in, counter()},
               {{"rate", rate}, {"seed", static_cast<int64_t>(seed_)}, {"salt", int64_t{num_dropouts_++}}},
               name);
}

ValueId Builder::max_pool(ValueId in, int64_t kernel, int64_t stride, int64_t padding) {
  return apply("max_pool2d", {in}, {{"kernel", kernel}, {"stride", stride}, {"padding", padding}},
               "max_pool");
}

ValueId Builder::global_avg_pool(ValueId in) { return apply("global_avg_pool", {in}, {}, "avg_pool"); }

ValueId Builder::resize(ValueId in, int64_t height, int64_t width, bool linear, bool align_corners) {
  ir::Attrs attrs = {{"height", height}, {"width", width}, {"linear", int64_t{linear}}};
  if (align_corners) attrs.set("align_corners", int64_t{1});
  return apply("resize", {in}, std::move(attrs), "resize");
}

ValueId Builder::flatten(ValueId in) {
  const Shape& shape = graph_.type(in).shape;
  return apply("reshape", {in}, {{"shape", std::vector<int64_t>{shape[0], shape.num_elements() / shape[0]}}},
               "flatten");
}

}  // namespace hearth::nn
