// Merging of an adapter into a model's weights: W + scale * B A, in f32. Reads one tensor of the base model
// at a time and computes blocks of kBlockRows rows in parallel, so that a model of any size needs the memory
// of one tensor.
#include "hub/model_weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "base/error.h"
#include "base/json.h"
#include "base/run_files.h"
#include "base/text.h"
#include "hub/adapter.h"
#include "hub/open_weights.h"
#include "hub/weights.h"
#include "models/decoder/config.h"

namespace hearth::hub {
namespace {

constexpr int64_t kBlockRows = 64;

HEARTH_CLONES void add_scaled(const float* in, float factor, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += factor * in[i];
}

bool is_stored(const io::TensorView& tensor) {
  return tensor.scale || tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 ||
         tensor.dtype == DType::f16;
}

int64_t num_rows(const Shape& shape) { return shape.rank() < 2 ? 1 : shape[0]; }

/// True if all values are finite and at most `max_magnitude` in magnitude.
bool all_within(std::span<const float> values, float max_magnitude) {
  if (std::isinf(max_magnitude)) return cpu::all_finite(values.data(), std::ssize(values));
  return std::ranges::all_of(values, [=](float value) { return std::abs(value) <= max_magnitude; });
}

/// True if embedding table and lm_head are tied: tie_word_embeddings in config.json, or the default of the
/// family.
bool ties_tables(const fs::path& config) {
  const auto json =
      parse_json_object<nlohmann::json>(read_file(config, models::kMaxConfigBytes), config.string());
  const auto tied = json.find("tie_word_embeddings");
  if (tied != json.end() && tied->is_boolean()) return tied->get<bool>();
  return models::read_decoder_config(config).tied_head;
}

std::vector<float> transposed_floats(const io::TensorView& view) {
  const std::vector<float> values = floats_of(view);
  std::vector<float> turned(values.size());
  const auto rows = static_cast<size_t>(view.shape[0]), columns = static_cast<size_t>(view.shape[1]);
  for (size_t i = 0; i < values.size(); ++i) turned[i % columns * rows + i / columns] = values[i];
  return turned;
}

}  // namespace

ModelWeights::ModelWeights(const ModelFolder& model, int num_threads)
    : base_(open_weights(model.weights)), threads_(num_threads) {
  if (model.adapter.empty()) return;
  is_denoiser_adapter(model.adapter) ? open_denoiser_adapter(model) : open_adapter(model);
}

void ModelWeights::open_denoiser_adapter(const ModelFolder& model) {
  denoiser_ = std::make_unique<const DenoiserAdapter>(model.adapter);
  path_ = denoiser_->path();
  for (const auto& [module, expected] : denoiser_->modules()) {
    const std::string name = module + ".weight";
    const Change change{
        .a = &denoiser_->matrix(module, 'A'), .b = &denoiser_->matrix(module, 'B'), .scale = expected.scale};
    check(name, change, expected.rank);
    changes_[name] = change;
  }
}

void ModelWeights::open_adapter(const ModelFolder& model) {
  const AdapterConfig config = read_adapter_config(model.adapter);
  path_ = adapter_weights(model.adapter);
  detect_gpt2(model.model / kModelConfig, config);
  for (const io::TensorView& tensor : adapter_.emplace(path_).tensors()) assign(tensor);
  for (auto& [name, change] : changes_) {
    const nn::Adapter::Change expected =
        config.rule->change_of(omitted_prefix_ + name.substr(0, name.rfind('.')));
    change.scale = expected.scale;
    check(name, change, expected.rank);
  }
  check_complete(*config.rule);
  check_untied(model.model / kModelConfig);
}

/// Sets transposed_ and omitted_prefix_ for GPT-2: its linear layers are transformers' Conv1D, with [in, out]
/// weights, and its original files omit the prefix "transformer." of names.
void ModelWeights::detect_gpt2(const fs::path& file, const AdapterConfig& config) {
  const auto json =
      parse_json_object<nlohmann::json>(read_file(file, models::kMaxConfigBytes), file.string());
  transposed_ = json.value("model_type", nlohmann::json()) == "gpt2";
  if (config.transposed && !transposed_) nn::refuse_transposed(config.rule->file());
  const std::string outer = "transformer.";
  if (transposed_ && name_in(base_, outer + "wte.weight") == "wte.weight") omitted_prefix_ = outer;
}

/// Throws a UserError if the adapter has no weights for a module that its configuration targets.
void ModelWeights::check_complete(const ModuleRule& rule) const {
  constexpr std::string_view kWeight = ".weight";
  if (rule.all_linear()) return;
  for (const std::string& name : base_.names()) {
    if (!name.ends_with(kWeight) || changes_.contains(name)) continue;
    const std::string module = omitted_prefix_ + name.substr(0, name.size() - kWeight.size());
    const nn::Adapter::Change expected = rule.change_of(module);
    if (expected.rank == 0 && !expected.whole) continue;
    user_error("{}: the weights of '{}' are missing, but {} lists it", path_.string(), module, rule.file());
  }
}

/// Throws a UserError if the adapter changes a tied embedding table: merging would change both the embedding
/// and the head, but PEFT changes only one of them.
void ModelWeights::check_untied(const fs::path& config) const {
  for (const auto& [name, change] : changes_) {
    const bool is_table = name.ends_with("embed_tokens.weight") || name.ends_with("wte.weight") ||
                          name.ends_with("lm_head.weight");
    if (is_table && ties_tables(config)) {
      user_error(
          "{}: the adapter changes '{}', but {} ties its embedding table and lm_head; try PEFT's "
          "merge_and_unload",
          path_.string(), name, config.string());
    }
  }
}

void ModelWeights::assign(const io::TensorView& tensor) {
  std::string name = tensor.name;
  if (!name.starts_with(kAdapterPrefix))
    user_error("{}: expected names that start with {}, got '{}'", path_.string(), kAdapterPrefix, name);
  name.erase(0, std::string_view(kAdapterPrefix).size());
  if (name.starts_with(omitted_prefix_)) name.erase(0, omitted_prefix_.size());
  constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
  if (name.ends_with(kA)) {
    changes_[name.substr(0, name.size() - kA.size()) + ".weight"].a = &tensor;
  } else if (name.ends_with(kB)) {
    changes_[name.substr(0, name.size() - kB.size()) + ".weight"].b = &tensor;
  } else {
    changes_[name].whole = &tensor;
  }
}

void ModelWeights::check(const std::string& name, const Change& change, int64_t rank) const {
  const io::TensorView* weight = base_.find(name);
  if (weight == nullptr || !is_stored(*weight)) {
    user_error("{}: expected an adapter of the model in {}, which has no '{}' in f32, bf16 or f16{}",
               path_.string(), base_.paths()[0].parent_path().string(), name,
               did_you_mean(name, base_.names()));
  }
  if (change.whole != nullptr) return check_shape(*change.whole, weight->shape);
  if (change.a == nullptr || change.b == nullptr || weight->shape.rank() != 2)
    user_error("{}: expected lora_A and lora_B for the matrix '{}'", path_.string(), name);
  if (rank == 0) {
    user_error("{}: '{}' does not belong to a module that adapter_config.json lists", path_.string(),
               change.a->name);
  }
  const int in = transposed_ ? 0 : 1;
  check_shape(*change.a, {rank, weight->shape[in]});
  check_shape(*change.b, {weight->shape[1 - in], rank});
}

void ModelWeights::check_shape(const io::TensorView& tensor, const Shape& wanted) const {
  if (tensor.shape == wanted && is_stored(tensor)) return;
  user_error("{}: expected '{}' with shape {}, found shape {} and dtype {}", path_.string(), tensor.name,
             to_string(wanted), to_string(tensor.shape), dtype_name(tensor.dtype));
}

/// Prepares rows() for a tensor: releases the mapped memory of the previous one, and reads the adapter's
/// matrices for this one.
void ModelWeights::prepare(const io::TensorView& weight) {
  if (read_ != nullptr && read_ != &weight) base_.release(*read_);
  read_ = source_ = &weight;
  rank_ = 0;
  edited_.clear();
  const auto found = changes_.find(weight.name);
  if (found == changes_.end()) return;
  if (found->second.whole != nullptr) {
    source_ = found->second.whole;
    return;
  }
  // A transposed weight is changed by (B A)^T = A^T B^T.
  a_ = transposed_ ? transposed_floats(*found->second.b) : floats_of(*found->second.a);
  b_ = transposed_ ? transposed_floats(*found->second.a) : floats_of(*found->second.b);
  rank_ = found->second.a->shape[0];
  scale_ = found->second.scale;
}

std::vector<float> ModelWeights::rows(const io::TensorView& weight, Range rows) const {
  const int64_t columns = weight.shape.num_elements() / num_rows(weight.shape);
  const int64_t count = rows.end - rows.begin;
  if (!edited_.empty()) {
    const auto first = edited_.begin() + rows.begin * columns;
    return {first, first + count * columns};
  }
  std::vector<float> values = floats_of(*source_, rows.begin * columns, count * columns);
  for (int64_t i = 0; i < count * rank_; ++i) {
    const float factor = b_[static_cast<size_t>(rows.begin * rank_ + i)];
    add_scaled(a_.data() + i % rank_ * columns, static_cast<float>(scale_ * factor),
               values.data() + i / rank_ * columns, columns);
  }
  return values;
}

void ModelWeights::edit(const std::string& name, std::function<void(std::span<float>)> change) {
  edits_[name] = std::move(change);
}

std::vector<float> ModelWeights::merged(const io::TensorView& weight) {
  prepare(weight);
  const int64_t count = num_rows(weight.shape);
  const int64_t columns = weight.shape.num_elements() / count;
  std::vector<float> values(static_cast<size_t>(count * columns));
  threads_.parallel_for((count + kBlockRows - 1) / kBlockRows, 1, [&](Range blocks) {
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const int64_t first = block * kBlockRows;
      std::ranges::copy(rows(weight, {first, std::min(count, first + kBlockRows)}),
                        values.begin() + first * columns);
    }
  });
  return values;
}

std::span<const std::byte> ModelWeights::encoded(const io::TensorView& weight, const RowEncoding& encoding) {
  prepare(weight);
  if (const auto found = edits_.find(weight.name); found != edits_.end()) {
    std::vector<float> values = merged(weight);
    found->second(values);
    edited_ = std::move(values);
  }
  const int64_t count = num_rows(weight.shape);
  const auto columns = static_cast<size_t>(weight.shape.num_elements() / count);
  bytes_.resize(static_cast<size_t>(count * encoding.row_bytes));
  std::atomic<bool> fits = true;
  threads_.parallel_for((count + kBlockRows - 1) / kBlockRows, 1, [&](Range blocks) {
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const Range range{block * kBlockRows, std::min(count, (block + 1) * kBlockRows)};
      std::vector<float> values = rows(weight, range);
      if (!all_within(values, encoding.max_magnitude)) fits = false;
      for (int64_t row = range.begin; fits && row < range.end; ++row) {
        const std::span<float> one =
            std::span(values).subspan(static_cast<size_t>(row - range.begin) * columns, columns);
        const int64_t target_row = encoding.target_row ? encoding.target_row(row) : row;
        encoding.write(one, bytes_.data() + target_row * encoding.row_bytes);
      }
    }
  });
  if (fits) return bytes_;
  if (std::isinf(encoding.max_magnitude)) refuse_not_finite(base_.paths()[0], weight.name);
  user_error("'{1}' has values above {0} or values that are not finite; try hearth export --type bf16",
             encoding.max_magnitude, weight.name);
}

std::span<const std::byte> ModelWeights::bytes_of(const io::TensorView& weight, DType dtype) {
  if (dtype != weight.dtype || weight.scale || weight.decoder || changes_.contains(weight.name) ||
      edits_.contains(weight.name))
    return encoded(weight, row_encoding(dtype, weight.shape.num_elements() / num_rows(weight.shape)));
  prepare(weight);
  return weight.bytes;
}

RowEncoding row_encoding(DType dtype, int64_t columns) {
  return {.row_bytes = columns * dtype_bytes(dtype),
          .max_magnitude = dtype == DType::f16 ? kMaxF16 : std::numeric_limits<float>::infinity(),
          .write = [dtype](std::span<float> values, std::byte* out) {
            cpu::store_f32(dtype, values.data(), out, 0, std::ssize(values));
          }};
}

}  // namespace hearth::hub
