#include "train/merge.h"

#include <algorithm>
#include <array>
#include <map>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "io/weight_files.h"
#include "train/adapter.h"
#include "train/weights.h"

namespace hearth::train {
namespace {

constexpr int64_t kBlockRows = 64;

HEARTH_CLONES void add_scaled(const float* in, float factor, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += factor * in[i];
}

/// What an adapter does to one weight: two matrices, or other values.
struct Change {
  const io::TensorView* a = nullptr;
  const io::TensorView* b = nullptr;
  const io::TensorView* whole = nullptr;
};

class Merger {
 public:
  Merger(const fs::path& weights, const AdapterOptions& options, const fs::path& base, int num_threads)
      : path_(weights), adapter_(weights), base_(base), scale_(options.scale()), threads_(num_threads) {
    for (const io::TensorView& tensor : adapter_.tensors()) assign(tensor);
    for (const auto& [name, change] : changes_) check(name, change, options.rank);
  }

  void write(const fs::path& folder) {
    for (size_t i = 0; i < base_.paths().size(); ++i) {
      const std::vector<io::TensorView>& tensors = base_.tensors_of(i);
      io::write_safetensors(folder / base_.paths()[i].filename(), tensors, [&](size_t index) {
        if (index > 0) base_.release(tensors[index - 1]);
        return bytes_of(tensors[index]);
      });
    }
  }
  int64_t num_changed() const { return std::ssize(changes_); }

 private:
  void assign(const io::TensorView& tensor) {
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

  void check(const std::string& name, const Change& change, int64_t rank) const {
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
  void check_shape(const io::TensorView& tensor, const Shape& wanted) const {
    if (tensor.shape == wanted && is_stored(tensor)) return;
    user_error("{}: expected '{}' as {}, found {} of {}", path_.string(), tensor.name, to_string(wanted),
               to_string(tensor.shape), dtype_name(tensor.dtype));
  }
  static bool is_stored(const io::TensorView& tensor) {
    return tensor.dtype == DType::f32 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f16;
  }

  std::span<const std::byte> bytes_of(const io::TensorView& weight) {
    const auto found = changes_.find(weight.name);
    if (found == changes_.end()) return weight.bytes;
    merged_.resize(weight.bytes.size());
    const Change& change = found->second;
    if (change.whole != nullptr) {
      const int64_t count = weight.shape.num_elements();
      cpu::store_f32(weight.dtype, floats_of(*change.whole, 0, count).data(), merged_.data(), 0, count);
    } else {
      add_product(weight, floats_of(*change.a, 0, change.a->shape.num_elements()),
                  floats_of(*change.b, 0, change.b->shape.num_elements()));
    }
    return merged_;
  }

  /// merged = weight + scale * b * a, row by row.
  void add_product(const io::TensorView& weight, const std::vector<float>& a, const std::vector<float>& b) {
    const int64_t rows = weight.shape[0], columns = weight.shape[1];
    const int64_t rank = std::ssize(a) / columns;
    threads_.parallel_for((rows + kBlockRows - 1) / kBlockRows, 1, [&](Range blocks) {
      for (int64_t block = blocks.begin; block < blocks.end; ++block) {
        const int64_t first = block * kBlockRows;
        const int64_t count = std::min(kBlockRows, rows - first);
        std::vector<float> values = floats_of(weight, first * columns, count * columns);
        for (int64_t i = 0; i < count * rank; ++i) {
          const float factor = b[static_cast<size_t>(first * rank + i)];
          add_scaled(a.data() + i % rank * columns, static_cast<float>(scale_ * factor),
                     values.data() + i / rank * columns, columns);
        }
        cpu::store_f32(weight.dtype, values.data(), merged_.data(), first * columns, count * columns);
      }
    });
  }

  fs::path path_;
  io::SafetensorsFile adapter_;
  io::WeightFiles base_;
  double scale_;
  ThreadPool threads_;
  std::map<std::string, Change> changes_;
  std::vector<std::byte> merged_;
};

/// Config, tokenizer, templates and the index of the shards, byte for byte.
void copy_companions(const fs::path& from, const fs::path& to) {
  constexpr std::array<std::string_view, 4> kKinds = {".json", ".model", ".txt", ".jinja"};
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path& file = entry.path();
    if (!entry.is_regular_file() || std::ranges::find(kKinds, file.extension().string()) == kKinds.end())
      continue;
    write_file_atomically(to / file.filename(), read_file(file));
  }
}

fs::path base_of(const MergeOptions& options, const AdapterConfig& config) {
  const fs::path base = options.model.empty() ? fs::path(config.base) : options.model;
  if (fs::is_directory(base)) return base;
  user_error("expected the folder of the base model, got '{}'{}; try --model DIR", base.string(),
             options.model.empty() ? " from adapter_config.json" : "");
}

}  // namespace

int64_t merge_adapter(const MergeOptions& options) {
  if (fs::exists(options.out) && !(fs::is_directory(options.out) && fs::is_empty(options.out)))
    user_error("expected a new folder for the merged model, got '{}', which is there already",
               options.out.string());
  const AdapterConfig config = read_adapter_config(options.adapter);
  const fs::path base = base_of(options, config);
  Merger merger(adapter_weights(options.adapter), config.options, base, options.num_threads);
  const fs::path partial =
      (fs::absolute(options.out) / ".").lexically_normal().parent_path().string() + ".partial";
  fs::remove_all(partial);
  make_folder(partial);
  try {
    merger.write(partial);
    copy_companions(base, partial);
    rename_durably(partial, options.out);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    throw;
  }
  return merger.num_changed();
}

}  // namespace hearth::train
