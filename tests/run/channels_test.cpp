// Coupled channels: a model without channels that are 0 computes what the full model does.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "models/model.h"
#include "ops/op_list.h"
#include "run/channel_scores.h"
#include "run/from_recipe.h"
#include "tasks/detect/detector.h"
#include "tasks/language/language_model.h"
#include "tasks/widths.h"

namespace hearth::run {
namespace {

using TensorValues = std::vector<std::vector<float>>;

/// Max weights of a model that is tested; larger ones have the layers of smaller ones.
constexpr int64_t kMaxWeights = 12'000'000;

/// Returns, for each weight, its kept elements.
template <typename AnyModel>
TensorValues kept_values(const AnyModel& full, const passes::Channels& channels, std::span<const char> keep,
                         const TensorValues& values) {
  TensorValues kept;
  for (size_t i = 0; i < values.size(); ++i) {
    const ir::ValueId value = full.tensors[i].value;
    kept.push_back(
        kept_elements(values[i], full.graph.type(value).shape, channels.axes[ir::index(value)], keep));
  }
  return kept;
}

struct Model {
  explicit Model(recipe::Recipe of, nn::Builder::Mode mode = nn::Builder::Mode::eval)
      : recipe(std::move(of)) {
    nn::Builder builder(graph, mode, 1);
    built = tasks::objective_of(tasks::Job(recipe))->build(builder, {.num_rows = kRows});
    tensors = builder.tensors();
  }
  int64_t num_weights() const {
    int64_t count = 0;
    for (const nn::Tensor& tensor : tensors) count += graph.type(tensor.value).shape.num_elements();
    return count;
  }

  static constexpr int64_t kRows = 2;
  recipe::Recipe recipe;
  ir::Graph graph;
  engine::Objective::Graph built;
  std::vector<nn::Tensor> tensors;
};

recipe::Recipe recipe_of(const std::string& model) {
  recipe::Recipe recipe =
      parse_recipe("model: {num_classes: 3}\ndata: {image_size: 64, resize: false}", "test");
  recipe.model.name = model;
  recipe.model.hidden = {24, 16};
  recipe.model.width = 16;
  recipe.passes.off = {recipe::kWinograd};
  recipe.threads = 1;
  return recipe;
}

/// Random values for all tensors of a model, in memory order; variances are positive.
template <typename AnyModel>
TensorValues random_values(const AnyModel& model) {
  std::mt19937 random(7);
  TensorValues values;
  for (const nn::Tensor& tensor : model.tensors) {
    const Shape& shape = model.graph.type(tensor.value).shape;
    const int64_t per_output = shape.rank() == 2 ? shape.back() : shape.num_elements() / shape.back();
    const double deviation = shape.rank() == 1 ? 0.5 : std::sqrt(2 / static_cast<double>(per_output));
    std::normal_distribution<float> normal(0, static_cast<float>(deviation));
    std::vector<float>& made = values.emplace_back(static_cast<size_t>(shape.num_elements()));
    for (float& value : made) value = normal(random);
    if (tensor.name.ends_with("running_var"))
      for (float& value : made) value = 0.5F + std::abs(value);
  }
  return values;
}

/// Sets to 0 everything that computes a removed channel: filters, biases, and weights of norms.
template <typename AnyModel>
void set_to_zero(const AnyModel& model, const passes::Channels& channels, std::span<const char> keep,
                 TensorValues& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const nn::Tensor& tensor = model.tensors[i];
    const Shape& shape = model.graph.type(tensor.value).shape;
    const auto layer = std::ranges::find(channels.layers, tensor.value, &passes::ChannelLayer::weight);
    const int axis = layer != channels.layers.end() ? layer->axis : 0;
    if ((layer == channels.layers.end() && shape.rank() != 1) ||
        tensor.name.find("running_") != std::string::npos)
      continue;
    const auto& sets = channels.axes[ir::index(tensor.value)][static_cast<size_t>(axis)];
    int64_t stride = 1;
    for (int later = axis + 1; later < shape.rank(); ++later) stride *= shape[later];
    for (size_t j = 0; j < values[i].size() && !sets.empty(); ++j)
      if (keep[ir::index(sets[j / static_cast<size_t>(stride) % sets.size()])] == 0) values[i][j] = 0;
  }
}

/// Returns the outputs of an evaluation of random images.
std::vector<float> outputs_of(const Model& model, const TensorValues& values) {
  const int64_t rows[] = {Model::kRows};
  const auto engine = engine::evaluation_engine(engine_options(tasks::Job(model.recipe)), rows);
  engine->initialize();
  for (size_t i = 0; i < values.size(); ++i)
    std::ranges::copy(values[i], engine::values(*engine, model.tensors[i].name).begin());
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> arrays;
  engine::MicroBatch batch({}, Model::kRows);
  for (const ir::ValueId input : model.built.inputs) {
    const ir::Value& value = model.graph.value(input);
    auto& array = arrays.emplace_back(static_cast<size_t>(value.type.num_bytes()) / sizeof(float) + 16, 0.0F);
    if (value.name == "images") std::ranges::generate(array, [&] { return normal(random); });
    if (value.name == "targets") std::ranges::fill(array, -1.0F);
    batch.add({.name = value.name.c_str(), .data = array.data()});
  }
  engine->evaluate(batch);
  const size_t last = model.built.outputs.size() - 1;
  const std::span<const float> found = engine->output(last);
  return {found.begin(), found.end()};
}

std::vector<std::string> image_models() {
  std::vector<std::string> names;
  for (const models::ModelDef& model : models::model_list()) names.emplace_back(model.name);
  for (const tasks::DetectorDef& model : tasks::detectors()) names.emplace_back(model.name);
  return names;
}

class ImageModel : public testing::TestWithParam<std::string> {};

TEST_P(ImageModel, ChannelsThatAreZeroCanBeRemoved) {
  const Model full(recipe_of(GetParam()));
  if (full.num_weights() > kMaxWeights) GTEST_SKIP() << "a large model, with the layers of a smaller one";
  const passes::Channels channels = passes::find_channels(full.graph);
  ASSERT_FALSE(channels.groups.empty());
  std::mt19937 random(5);
  std::vector<char> keep(static_cast<size_t>(channels.num_sets), 1);
  recipe::Recipe narrow = full.recipe;
  for (const passes::ChannelGroup& group : channels.groups) {
    size_t kept = group.sets.size();
    for (size_t i = 1; i < group.sets.size(); ++i)
      if (random() % 3 == 0) keep[ir::index(group.sets[i])] = 0, --kept;
    narrow.model.widths.push_back(fmt::format("{}={}", group.name(), kept));
  }
  const Model small(narrow);
  EXPECT_LT(small.num_weights(), full.num_weights() * 3 / 4);

  TensorValues values = random_values(full);
  set_to_zero(full, channels, keep, values);
  const TensorValues kept = kept_values(full, channels, keep, values);
  for (size_t i = 0; i < kept.size(); ++i) {
    ASSERT_EQ(std::ssize(kept[i]), small.graph.type(small.tensors[i].value).shape.num_elements())
        << full.tensors[i].name;
  }
  const std::vector<float> wanted = outputs_of(full, values), found = outputs_of(small, kept);
  ASSERT_EQ(wanted.size(), found.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, static_cast<double>(std::abs(wanted[i])));
    difference = std::max(difference, static_cast<double>(std::abs(wanted[i] - found[i])));
  }
  EXPECT_GT(largest, 1e-3);
  EXPECT_LT(difference, 2e-5 * largest);
}

TEST_P(ImageModel, TrainsAndEvaluatesWithTheSameWidths) {
  recipe::Recipe recipe = recipe_of(GetParam());
  const Model full(recipe, nn::Builder::Mode::train);
  if (full.num_weights() > kMaxWeights) GTEST_SKIP() << "a large model, with the layers of a smaller one";
  for (const passes::ChannelGroup& group : passes::find_channels(full.graph).groups)
    recipe.model.widths.push_back(fmt::format("{}={}", group.name(), (std::ssize(group.sets) + 1) / 2));
  std::map<std::string, Shape> trained;
  for (const nn::Tensor& tensor : Model(recipe, nn::Builder::Mode::train).tensors)
    trained[tensor.name] = tensor.layout.file_shape;
  for (const nn::Tensor& tensor : Model(recipe).tensors)
    EXPECT_EQ(tensor.layout.file_shape, trained.at(tensor.name)) << tensor.name;
}

INSTANTIATE_TEST_SUITE_P(All, ImageModel, testing::ValuesIn(image_models()),
                         [](const auto& info) { return info.param; });

constexpr int64_t kContext = 12;

/// The graph of a language model's training objective.
struct TextModel {
  explicit TextModel(models::DecoderConfig of) : config(std::move(of)) {
    nn::Builder builder(graph, nn::Builder::Mode::eval, 1);
    tasks::language_model({.config = config, .context = kContext})->build(builder, {.num_rows = 1});
    tensors = builder.tensors();
  }
  double loss(const TensorValues& values) const {
    const int64_t rows[] = {1};
    const auto engine = engine::evaluation_engine(
        {.objective = tasks::language_model({.config = config, .context = kContext})}, rows);
    engine->initialize();
    for (size_t i = 0; i < values.size(); ++i)
      std::ranges::copy(values[i], engine::values(*engine, tensors[i].name).begin());
    std::array<int32_t, kContext + 16> tokens{}, labels{}, positions{};
    for (int32_t i = 0; i < kContext; ++i) {
      const auto at = static_cast<size_t>(i);
      tokens[at] = i * 37 % 100, labels[at] = (i + 1) * 37 % 100, positions[at] = i;
    }
    return engine->evaluate(
        {{{"tokens", tokens.data()}, {"labels", labels.data()}, {"positions", positions.data()}}, 1});
  }

  models::DecoderConfig config;
  ir::Graph graph;
  std::vector<nn::Tensor> tensors;
};

nlohmann::ordered_json decoder_json(const std::string& family) {
  if (family == "gpt2")
    return {{"model_type", family}, {"vocab_size", 100}, {"n_embd", 32}, {"n_layer", 2}, {"n_head", 4}};
  nlohmann::ordered_json json = {
      {"model_type", family},          {"vocab_size", 100},      {"hidden_size", 32},
      {"intermediate_size", 48},       {"num_hidden_layers", 2}, {"num_attention_heads", 8},
      {"num_key_value_heads", 4},      {"rms_norm_eps", 1e-5},   {"head_dim", 8},
      {"max_position_embeddings", 512}};
  if (family == "gemma2") json["query_pre_attn_scalar"] = 8;
  if (family == "phi3") json["pad_token_id"] = 0;
  return json;
}

class Decoder : public testing::TestWithParam<std::string> {};

TEST_P(Decoder, HeadsAndColumnsThatAreZeroCanBeRemoved) {
  nlohmann::ordered_json json = decoder_json(GetParam());
  const bool keeps_heads = GetParam() == "gpt2";
  const TextModel full(models::parse_decoder_config(json.dump(), "config.json"));
  const passes::Channels channels = passes::find_channels(full.graph);
  ASSERT_EQ(channels.groups.size(), 4U);  // Heads and columns of two layers.
  std::vector<char> keep(static_cast<size_t>(channels.num_sets), 1);
  for (const passes::ChannelGroup& group : channels.groups) {
    if (keeps_heads && group.sets.size() == 4) continue;
    for (size_t i = 0; i < group.sets.size(); i += 2) keep[ir::index(group.sets[i])] = 0;
  }
  if (keeps_heads) {
    json["n_inner"] = 64;
  } else {
    json["num_attention_heads"] = 4, json["num_key_value_heads"] = 2, json["intermediate_size"] = 24;
  }
  const TextModel small(models::parse_decoder_config(json.dump(), "config.json"));
  TensorValues values = random_values(full);
  const double dense = full.loss(values);
  set_to_zero(full, channels, keep, values);
  const double wanted = full.loss(values), found = small.loss(kept_values(full, channels, keep, values));
  EXPECT_LT(std::abs(found - wanted), 1e-5 * std::abs(wanted));
  EXPECT_GT(std::abs(dense - wanted), 1e-4 * std::abs(wanted));
}

INSTANTIATE_TEST_SUITE_P(Families, Decoder,
                         testing::Values("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "granite",
                                         "gpt2"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hearth::run
