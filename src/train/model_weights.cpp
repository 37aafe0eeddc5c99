#include "train/model_weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "base/error.h"
#include "base/text.h"
#include "train/adapter.h"
#include "train/weights.h"

namespace hearth::train {
namespace {

constexpr int64_t kBlockRows = 64;
constexpr float kLargestF16 = 65504;

HEARTH_CLONES void add_scaled(const float* in, float factor, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += factor * in[i];
}

bool is_stored(const io::TensorView& tensor) {
  return tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16;
}

int64_t num_rows(const Shape& shape) { return shape.rank() < 2 ? 1 : shape[0]; }

/// Whether every value is finite and can be written.
bool all_within(std::span<const float> values, float largest) {
  if (std::isinf(largest)) return cpu::all_finite(values.data(), std::ssize(values));
  return std::ranges::all_of(values, [=](float value) { return std::abs(value) <= largest; });
}

std::vector<float> all_floats(const io::TensorView& view) {
  return floats_of(view, 0, view.shape.num_elements());
}

}  // namespace

ModelWeights::ModelWeights(const ModelFolder& model, int num_threads)
    : base_(model.weights), threads_(num_threads) {
  if (!model.adapter.empty()) open_adapter(model.adapter);
}

void ModelWeights::open_adapter(const fs::path& adapter) {
  const AdapterOptions options = read_adapter_config(adapter).options;
  path_ = adapter_weights(adapter);
  scale_ = options.scale();
  for (const io::TensorView& tensor : adapter_.emplace_back(path_).tensors()) assign(tensor);
  for (const auto& [name, change] : changes_) check(name, change, options.rank);
}

void ModelWeights::assign(const io::TensorView& tensor) {
  std::string name = tensor.name;
  if (!name.starts_with(kAdapterPrefix))
    user_error("{}: expected names that start with {}, got '{}'", path_.string(), kAdapterPrefix, name);
  name.erase(0, std::string_view(kAdapterPrefix).size());
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
  check_shape(*change.a, {rank, weight->shape[1]});
  check_shape(*change.b, {weight->shape[0], rank});
}

void ModelWeights::check_shape(const io::TensorView& tensor, const Shape& wanted) const {
  if (tensor.shape == wanted && is_stored(tensor)) return;
  user_error("{}: expected '{}' as {}, found {} of {}", path_.string(), tensor.name, to_string(wanted),
             to_string(tensor.shape), dtype_name(tensor.dtype));
}

/// Gives the memory of the tensor before back and reads what the adapter does to this one.
void ModelWeights::prepare(const io::TensorView& weight) {
  if (read_ != nullptr && read_ != &weight) base_.release(*read_);
  read_ = whole_ = &weight;
  rank_ = 0;
  const auto found = changes_.find(weight.name);
  if (found == changes_.end()) return;
  if (found->second.whole != nullptr) {
    whole_ = found->second.whole;
    return;
  }
  a_ = all_floats(*found->second.a);
  b_ = all_floats(*found->second.b);
  rank_ = found->second.a->shape[0];
}

std::vector<float> ModelWeights::rows(const io::TensorView& weight, Range rows) const {
  const int64_t columns = weight.shape.num_elements() / num_rows(weight.shape);
  const int64_t count = rows.end - rows.begin;
  std::vector<float> values = floats_of(*whole_, rows.begin * columns, count * columns);
  for (int64_t i = 0; i < count * rank_; ++i) {
    const float factor = b_[static_cast<size_t>(rows.begin * rank_ + i)];
    add_scaled(a_.data() + i % rank_ * columns, static_cast<float>(scale_ * factor),
               values.data() + i / rank_ * columns, columns);
  }
  return values;
}

std::span<const std::byte> ModelWeights::encoded(const io::TensorView& weight, const RowEncoding& encoding) {
  prepare(weight);
  const int64_t count = num_rows(weight.shape);
  const auto columns = static_cast<size_t>(weight.shape.num_elements() / count);
  bytes_.resize(static_cast<size_t>(count * encoding.row_bytes));
  std::atomic<bool> fits = true;
  threads_.parallel_for((count + kBlockRows - 1) / kBlockRows, 1, [&](Range blocks) {
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      const Range range{block * kBlockRows, std::min(count, (block + 1) * kBlockRows)};
      std::vector<float> values = rows(weight, range);
      if (!all_within(values, encoding.largest)) fits = false;
      for (int64_t row = range.begin; fits && row < range.end; ++row) {
        const std::span<float> one =
            std::span(values).subspan(static_cast<size_t>(row - range.begin) * columns, columns);
        const int64_t place = encoding.place ? encoding.place(row) : row;
        encoding.write(one, bytes_.data() + place * encoding.row_bytes);
      }
    }
  });
  if (fits) return bytes_;
  if (std::isinf(encoding.largest)) refuse_not_finite(base_.paths()[0], weight.name);
  user_error(
      "expected values of at most {} in '{}', got larger ones or none that are finite; try hearth export "
      "--type bf16",
      encoding.largest, weight.name);
}

std::span<const std::byte> ModelWeights::bytes_of(const io::TensorView& weight, DType dtype) {
  if (dtype != weight.dtype || changes_.contains(weight.name))
    return encoded(weight, row_encoding(dtype, weight.shape.num_elements() / num_rows(weight.shape)));
  prepare(weight);
  return weight.bytes;
}

RowEncoding row_encoding(DType dtype, int64_t columns) {
  return {.row_bytes = columns * dtype_bytes(dtype),
          .largest = dtype == DType::f16 ? kLargestF16 : std::numeric_limits<float>::infinity(),
          .write = [dtype](std::span<float> values, std::byte* out) {
            cpu::store_f32(dtype, values.data(), out, 0, std::ssize(values));
          }};
}

}  // namespace hearth::train
