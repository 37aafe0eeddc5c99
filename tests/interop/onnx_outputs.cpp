#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "base/philox.h"
#include "hub/export_onnx.h"
#include "hub/weights.h"
#include "io/safetensors.h"
#include "run/calibrate.h"
#include "run/from_recipe.h"

/// onnx_outputs run RUN IMAGES.safetensors OUT.safetensors: what a run's weights make of `images`
/// [N, H, W, C], each exported value under its name.
/// onnx_outputs int8 RUN IMAGES.safetensors OUT.safetensors NUM_IMAGES: what an int8 model makes of them,
/// with ranges of activations that are measured on NUM_IMAGES held-out images. onnx_outputs
/// ops FOLDER: a graph with every operation that can be exported, as ops.onnx, with images.safetensors and
/// outputs.safetensors.
namespace hearth {
namespace {

using engine::Objective;
using ir::ValueId;
using nn::Builder;

/// The exported values of another objective as outputs, computed in int8 if `rounds`.
class Exported : public Objective {
 public:
  Exported(std::shared_ptr<const Objective> objective, bool rounds)
      : objective_(std::move(objective)), rounds_(rounds) {}
  Graph build(Builder& builder, engine::BatchShape shape) const override {
    const Graph inner = objective_->build(builder, shape);
    if (rounds_) nn::round_to_int8(builder);
    Graph made{.inputs = {inner.inputs[0]}};
    for (const auto& [name, value] : inner.exported) made.outputs.push_back(value);
    return made;
  }

 private:
  std::shared_ptr<const Objective> objective_;
  bool rounds_;
};

/// Every operation, in ways that the models do not have them.
class Operations : public Objective {
 public:
  static constexpr int64_t kHeight = 9, kWidth = 7, kChannels = 4;
  Graph build(Builder& builder, engine::BatchShape shape) const override {
    const ValueId images =
        builder.input("images", {.dtype = DType::f32, .shape = {shape.num_rows, kHeight, kWidth, kChannels}});
    Graph made{.inputs = {images}};
    const auto give = [&](const char* name, ValueId value) { made.exported.emplace_back(name, value); };
    const auto op = [&](const char* name, std::vector<ValueId> inputs, ir::Attrs attrs = {}) {
      return builder.op(name, std::move(inputs), std::move(attrs));
    };
    layers(builder, images, give);
    elementwise(builder, images, give, op);
    sizes(builder, images, give, op);
    return made;
  }

 private:
  using Give = std::function<void(const char*, ValueId)>;
  using Op = std::function<ValueId(const char*, std::vector<ValueId>, ir::Attrs)>;

  static void layers(Builder& builder, ValueId images, const Give& give) {
    const Builder::Conv grouped{
        .out_channels = 6, .stride = 2, .padding = 2, .bias = true, .dilation = 2, .groups = 2};
    give("grouped", builder.batch_norm("grouped_bn", builder.conv("grouped", images, grouped)));
    const ValueId biased = builder.conv("biased", images, {.out_channels = 5, .bias = true});
    give("biased", biased);
    const ir::Graph& graph = builder.graph();
    give("unbiased", graph.node(graph.value(biased).producer).inputs[0]);
    give("batch_norm", builder.batch_norm("bn", builder.relu(images)));
    give("blocks",
         builder.conv("blocks", builder.resize(images, 8, 6, true),
                      {.out_channels = 3, .kernel = 6, .stride = 2, .padding = 2, .space_to_depth = true}));
    const ValueId larger = builder.conv_transpose(
        "larger", images, {.out_channels = 3, .kernel = 3, .padding = 1, .out_h = 18, .out_w = 13});
    give("transposed", builder.batch_norm("larger_bn", larger));
    give("group_norm", builder.group_norm("group_norm", images, 2));
    const ValueId linear = builder.linear("linear", builder.flatten(images), 8);
    give("linear", builder.batch_norm("linear_bn", linear));
    give("max_pool", builder.max_pool(images, 3, 2, 1));
    const ValueId mean = builder.global_avg_pool(images);
    give("mean", mean);
    give("scaled", builder.op("scale_channels", {images, mean}));
  }

  static void elementwise(Builder&, ValueId images, const Give& give, const Op& op) {
    for (const char* name : {"relu", "sigmoid", "silu", "exp", "hardswish", "hardsigmoid"})
      give(name, op(name, {images}, {}));
    const ValueId twice = op("scale", {images}, {{"factor", 2.0}});
    const ValueId more = op("add_scalar", {op("exp", {images}, {})}, {{"value", 0.5}});
    give("scale", twice);
    give("cast", op("cast", {twice}, {{"dtype", std::string("f32")}}));
    for (const char* name : {"add", "sub", "mul", "div"}) {
      const std::string full = std::string(name) + "_both";
      give(full.c_str(), op(name, {twice, more}, {}));
    }
  }

  static void sizes(Builder& builder, ValueId images, const Give& give, const Op& op) {
    give("nearest", builder.resize(images, 18, 14, false));
    give("linear_up", builder.resize(images, 20, 11, true));
    give("linear_down", builder.resize(images, 4, 1, true));
    give("aligned", builder.resize(images, 17, 5, true, true));
    const ValueId part = op("slice_last", {images}, {{"begin", int64_t{1}}, {"count", int64_t{2}}});
    give("slice", part);
    give("concat", builder.concat({part, images}));
    give("softmax", op("softmax", {images}, {}));
    const int64_t rows = builder.graph().type(images).shape[0];
    const auto shaped = [&](ValueId in, std::vector<int64_t> axes) {
      axes.insert(axes.begin(), rows);
      return op("reshape", {in}, {{"shape", axes}});
    };
    // Not of the input itself, which is no memory of the engine's.
    const ValueId changed = op("exp", {images}, {});
    give("image_again", shaped(changed, {kWidth, 2, kHeight * 2}));
    give("rows", shaped(changed, {kHeight * kWidth, kChannels}));
    give("pixel", shaped(builder.global_avg_pool(images), {1, 1, kChannels}));
    give("rows_slice", op("slice_last", {shaped(images, {kHeight * kWidth, kChannels})},
                          {{"begin", int64_t{3}}, {"count", int64_t{1}}}));
  }
};

struct Values {
  std::vector<std::string> names;
  std::vector<std::vector<float>> values;
};

using Ranges = std::map<std::string, nn::ActivationRange>;

Values evaluate(engine::EngineOptions options, const fs::path& weights, std::vector<float> images,
                int64_t count, const Ranges& ranges = {}) {
  const std::shared_ptr<const Objective> objective = options.objective;
  ir::Graph graph;
  Builder builder(graph, Builder::Mode::eval, 0);
  Values made;
  for (const auto& [name, value] : objective->build(builder, {.num_rows = count}).exported)
    made.names.push_back(name);
  options.objective = std::make_shared<Exported>(objective, !ranges.empty());
  const auto made_engine = engine::evaluation_engine(std::move(options), std::span(&count, 1));
  engine::Engine& engine = *made_engine;
  engine.initialize();
  hub::load_weights(engine, weights);
  for (const auto& [name, range] : ranges)
    std::ranges::copy(std::array{range.low, range.high}, engine::values(engine, name).begin());
  images.resize(images.size() + static_cast<size_t>(engine::kInputSlack));
  engine.evaluate({{{"images", images.data()}}, count});
  for (size_t i = 0; i < made.names.size(); ++i) {
    const std::span<const float> output = engine.output(i);
    made.values.emplace_back(output.begin(), output.end());
  }
  return made;
}

void save(const fs::path& path, const Values& all) {
  std::vector<io::TensorView> views;
  for (size_t i = 0; i < all.names.size(); ++i)
    views.push_back({.name = all.names[i],
                     .dtype = DType::f32,
                     .shape = {std::ssize(all.values[i])},
                     .bytes = std::as_bytes(std::span(all.values[i]))});
  io::write_safetensors(path, views);
}

/// `num_calibration`: 0 for f32.
void run_outputs(const fs::path& run, const fs::path& pictures, const fs::path& out,
                 int64_t num_calibration) {
  const recipe::Recipe recipe = run::load_recipe(run / "config.yaml");
  const io::SafetensorsFile file(pictures);
  const io::TensorView* images = file.find("images");
  HEARTH_CHECK(images != nullptr);
  Ranges ranges;
  if (num_calibration > 0)
    ranges = run::calibrate(recipe, run, num_calibration, run::RangeChoice::smallest_error);
  save(out, evaluate(run::engine_options(tasks::Job(recipe)), hub::run_weights(run, false),
                     hub::floats_of(*images, 0, images->shape.num_elements()), images->shape[0], ranges));
}

/// From 0.5 to 1.5, so that they may be variances; weights of layers are centered.
std::vector<float> drawn(const std::string& name, int64_t count) {
  std::vector<float> made(static_cast<size_t>(count));
  for (size_t i = 0; i < made.size(); ++i) {
    const auto words = philox4x32(std::hash<std::string>()(name), {static_cast<uint32_t>(i), 0, 0, 0});
    made[i] = unit_float(words[0]) + (name.ends_with("running_var") ? 0.5F : -0.5F);
  }
  return made;
}

void every_op(const fs::path& folder) {
  const auto objective = std::make_shared<const Operations>();
  ir::Graph graph;
  Builder builder(graph, Builder::Mode::eval, 0);
  objective->build(builder, {.num_rows = 1});
  Values weights;
  std::vector<io::TensorView> views;
  for (const nn::Tensor& tensor : builder.tensors()) {
    weights.values.push_back(drawn(tensor.name, tensor.layout.file_shape.num_elements()));
    views.push_back({.name = tensor.name,
                     .dtype = DType::f32,
                     .shape = tensor.layout.file_shape,
                     .bytes = std::as_bytes(std::span(weights.values.back()))});
  }
  const fs::path file = folder / "weights.safetensors";
  io::write_safetensors(file, views);
  hub::export_onnx(*objective, file, {.out = folder / "ops.onnx", .name = "ops", .metadata = {}});
  constexpr int64_t kRows = 3;
  const std::vector<float> images =
      drawn("images", kRows * Operations::kHeight * Operations::kWidth * Operations::kChannels);
  save(folder / "images.safetensors", {.names = {"images"}, .values = {images}});
  save(folder / "outputs.safetensors", evaluate({.objective = objective}, file, images, kRows));
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  using namespace hearth;
  const std::string mode = argc > 1 ? argv[1] : "";
  try {
    if (mode == "run" && argc == 5) {
      run_outputs(argv[2], argv[3], argv[4], 0);
    } else if (mode == "int8" && argc == 6) {
      run_outputs(argv[2], argv[3], argv[4], std::stoll(argv[5]));
    } else if (mode == "ops" && argc == 3) {
      every_op(argv[2]);
    } else {
      return 2;
    }
  } catch (const UserError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
  return 0;
}
