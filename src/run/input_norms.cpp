#include "run/input_norms.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/process.h"
#include "base/text.h"
#include "hub/weights.h"
#include "models/decoder/decoder.h"
#include "run/capture_teacher.h"
#include "run/device_rates.h"
#include "run/from_recipe.h"
#include "tasks/language/text_task.h"

namespace hearth::run {
namespace {

using ir::ValueId;

/// Arrays of a row of tokens: inputs of a decoder, and the hidden states after the layers computed so far.
struct Row {
  std::vector<int32_t> tokens, positions, starts;
  std::vector<float> valid;   ///< 1 for tokens, 0 for padding
  std::vector<float> hidden;  ///< [tokens, hidden]
};

/// Returns a copy of an array with space for the slack that kernels may read.
template <typename T>
std::vector<T> copy_of(const T* data, int64_t count) {
  std::vector<T> copy(data, data + count);
  copy.resize(copy.size() + engine::kInputSlack / sizeof(T));
  return copy;
}

/// Reads the rows. `context`: number of tokens of a row.
std::vector<Row> read_rows(const tasks::TextRows& rows, int64_t num_rows, int64_t context, int64_t hidden) {
  std::vector<Row> found;
  tasks::RowOrder order(rows, false, {});
  const auto stream = tasks::stream_rows(rows, 1, false, {}, {});
  for (data::LoaderPosition at; at.sample < num_rows; ++at.sample) {
    const engine::MicroBatch batch = stream->next();
    Row row{.tokens = copy_of(batch.array<int32_t>("tokens"), context),
            .positions = copy_of(batch.array<int32_t>("positions"), context)};
    if (rows.options().documents) row.starts = copy_of(batch.array<int32_t>("starts"), context);
    const auto size = static_cast<size_t>(context) + engine::kInputSlack / sizeof(float);
    row.valid.resize(size);
    const int64_t length = rows.lengths()[static_cast<size_t>(order.row_at(at))];
    std::fill_n(row.valid.begin(), std::min(length, context), 1.0F);
    row.hidden.resize(static_cast<size_t>(context * hidden) + engine::kInputSlack / sizeof(float));
    found.push_back(std::move(row));
  }
  return found;
}

engine::MicroBatch batch_of(const Row& row) {
  engine::MicroBatch batch({{"tokens", row.tokens.data()},
                            {"positions", row.positions.data()},
                            {"valid", row.valid.data()},
                            {"hidden", row.hidden.data()}},
                           1);
  if (!row.starts.empty()) batch.add({"starts", row.starts.data()});
  return batch;
}

/// Computes a part of a decoder: its input for layer -1, otherwise a layer and the squared norms of the
/// inputs of its linear layers. Outputs: hidden states, then the norms of the layers in weights().
class DecoderPart : public engine::Objective {
 public:
  DecoderPart(const models::DecoderConfig& config, int64_t context, bool documents, int64_t layer)
      : config_(config), context_(context), documents_(documents), layer_(layer) {}

  const std::vector<std::string>& weights() const { return weights_; }

  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    Graph graph;
    const int64_t count = shape.num_rows * context_;
    const auto input = [&](const char* name, DType dtype, const Shape& dims) {
      graph.inputs.push_back(builder.input(name, {.dtype = dtype, .shape = dims}));
      return graph.inputs.back();
    };
    models::DecoderInputs in{.tokens = input("tokens", DType::i32, {count}),
                             .positions = input("positions", DType::i32, {count}),
                             .num_rows = shape.num_rows,
                             .context = context_};
    if (documents_) in.starts = input("starts", DType::i32, {count});
    const ValueId valid = input("valid", DType::f32, {count, 1});
    const ValueId hidden = input("hidden", DType::f32, {count, config_.hidden});
    if (layer_ < 0) {
      graph.outputs = {models::build_decoder_input(builder, config_, in)};
      return graph;
    }
    const nn::Builder::Scope scope(builder, models::decoder_layer_name(config_, layer_));
    graph.outputs = {models::build_decoder_layer(builder, config_, in, hidden, layer_)};
    add_norms(builder, valid, graph.outputs);
    return graph;
  }

 private:
  void add_norms(nn::Builder& builder, ValueId valid, std::vector<ValueId>& outputs) const {
    weights_.clear();
    const std::vector<ir::Node> nodes = builder.graph().nodes;
    for (const ir::Node& node : nodes) {
      if (node.op->name != "matmul") continue;
      weights_.push_back(builder.graph().value(node.inputs[1]).name);
      const ValueId x = builder.op("scale_rows", {node.inputs[0], valid});
      outputs.push_back(builder.op("sum_leading", {builder.op("mul", {x, x})}));
    }
  }

  const models::DecoderConfig& config_;
  int64_t context_;
  bool documents_;
  int64_t layer_;
  mutable std::vector<std::string> weights_;
};

/// Runs the rows through a model, part by part.
class Calibration {
 public:
  Calibration(const tasks::Job& job, const hub::ModelFolder& model, const hub::PruneOptions& options)
      : job_(job),
        config_(*job.decoder),
        options_(options),
        model_(model),
        weights_(model, recipe::num_threads(job.recipe)) {}

  hub::InputNorms run(std::vector<Row> rows) {
    run_part(rows, -1);
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) run_part(rows, layer);
    return std::move(norms_);
  }

 private:
  void run_part(std::vector<Row>& rows, int64_t layer) {
    const auto part = std::make_shared<DecoderPart>(config_, job_.recipe.data.context,
                                                    recipe::has_documents(job_.recipe), layer);
    engine::EngineOptions options = engine_options(job_);
    options.objective = part;
    options.precision = DType::f32;
    options.adapter = {};
    options.rounding = {};
    options.prune = {};
    options.batch = 1;
    set_device_rates(options);
    const int64_t one_row[] = {1};
    const auto engine = engine::evaluation_engine(std::move(options), one_row);
    for (const nn::Tensor& tensor : engine->plan().tensors) load(*engine, tensor);
    if (!part->weights().empty()) prune(*engine, part->weights(), rows);
    for (Row& row : rows) {
      engine->evaluate(batch_of(row));
      std::ranges::copy(engine->output(0), row.hidden.begin());
    }
  }

  void load(engine::Engine& engine, const nn::Tensor& tensor) {
    const io::TensorView* view = weights_.files().find(hub::name_in(weights_.files(), tensor.name));
    if (view == nullptr || view->shape != tensor.layout.file_shape) {
      user_error("{}: expected a tensor '{}' of shape {}", model_.weights.string(), tensor.name,
                 to_string(tensor.layout.file_shape));
    }
    nn::from_file_order(tensor.layout, weights_.merged(*view).data(),
                        engine::values(engine, tensor.name).data());
  }

  /// Computes the norms of the layer's inputs, and prunes its weights in the engine.
  void prune(engine::Engine& engine, const std::vector<std::string>& weights, const std::vector<Row>& rows) {
    std::vector<std::vector<double>> squares(weights.size());
    for (const Row& row : rows) {
      engine.evaluate(batch_of(row));
      for (size_t i = 0; i < weights.size(); ++i) {
        const std::span<const float> found = engine.output(i + 1);
        squares[i].resize(found.size());
        for (size_t j = 0; j < found.size(); ++j) squares[i][j] += static_cast<double>(found[j]);
      }
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      std::vector<float>& norms = norms_[weights[i]];
      for (const double square : squares[i]) norms.push_back(static_cast<float>(std::sqrt(square)));
      const auto num_inputs = std::ssize(norms);
      if (num_inputs % group_size(options_.pattern) == 0)
        hub::prune_weight(engine::values(engine, weights[i]), num_inputs, options_, &norms);
    }
  }

  const tasks::Job& job_;
  const models::DecoderConfig& config_;
  const hub::PruneOptions& options_;
  const hub::ModelFolder& model_;
  hub::ModelWeights weights_;
  hub::InputNorms norms_;
};

}  // namespace

hub::InputNorms input_norms(recipe::Recipe given, const hub::ModelFolder& model,
                            const hub::PruneOptions& options, int64_t num_rows) {
  hub::check_weights(model);
  const tasks::Job job(with_model(std::move(given), model));
  if (job.decoder->experts.count > 0) {
    user_error("{}: Wanda does not support models with experts; use --method magnitude",
               model.model.string());
  }
  const tasks::TextTask task(job);
  const tasks::TextRows& rows = task.training_rows();
  num_rows = std::min(num_rows, rows.num_rows());
  const int64_t context = job.recipe.data.context, hidden = job.decoder->hidden;
  const int64_t needed = num_rows * context * hidden * int64_t{sizeof(float)};
  if (const int64_t free = available_memory_bytes(); needed > free) {
    user_error("{} of memory are free, but the hidden states of {} rows of {} tokens need {}; lower --rows",
               human_bytes(free), num_rows, context, human_bytes(needed));
  }
  return Calibration(job, model, options).run(read_rows(rows, num_rows, context, hidden));
}

}  // namespace hearth::run
