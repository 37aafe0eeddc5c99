#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "hub/adapter.h"
#include "hub/denoiser_adapter.h"
#include "hub/model_folder.h"
#include "hub/module_rule.h"
#include "io/weight_files.h"

namespace hearth::hub {

/// How the rows of a tensor are written.
struct RowEncoding {
  int64_t row_bytes = 0;
  float largest = std::numeric_limits<float>::infinity();  ///< magnitude that can be written
  std::function<void(std::span<float> values, std::byte* out)> write;
  std::function<int64_t(int64_t row)> place = {};  ///< which row it becomes; empty: the same
};

/// The weights of a model, base + scale * B * A where there is an adapter, one tensor in memory at a time.
class ModelWeights {
 public:
  /// UserError for an adapter that is not one of this model.
  ModelWeights(const ModelFolder& model, int num_threads);

  /// Names, shapes and places; their bytes are those under the adapter.
  const io::WeightFiles& files() const { return base_; }
  int64_t num_changed() const { return std::ssize(changes_); }

  /// A tensor's bytes; valid until the next call. A tensor that is no matrix is one row (of more axes, rows
  /// are those of the first). UserError for values above encoding.largest.
  std::span<const std::byte> encoded(const io::TensorView& weight, const RowEncoding& encoding);
  /// The same in a floating dtype.
  std::span<const std::byte> bytes_of(const io::TensorView& weight, DType dtype);

 private:
  /// What an adapter does to one weight: two matrices, or other values.
  struct Change {
    const io::TensorView* a = nullptr;
    const io::TensorView* b = nullptr;
    const io::TensorView* whole = nullptr;
    double scale = 0;  ///< of their product
  };
  void open_adapter(const ModelFolder& model);
  void open_denoiser_adapter(const ModelFolder& model);
  void look_at(const fs::path& file, const AdapterConfig& config);
  void assign(const io::TensorView& tensor);
  void check(const std::string& name, const Change& change, int64_t rank) const;
  void check_all_there(const ModuleRule& rule) const;
  void check_untied(const fs::path& config) const;
  void check_shape(const io::TensorView& tensor, const Shape& wanted) const;
  void prepare(const io::TensorView& weight);
  std::vector<float> rows(const io::TensorView& weight, Range rows) const;

  fs::path path_;  ///< of the adapter's weights
  std::optional<io::WeightFiles> adapter_;
  std::unique_ptr<const DenoiserAdapter> denoiser_;  ///< in its place
  io::WeightFiles base_;
  double scale_ = 0;
  std::string outer_;        ///< what names of the model begin with and those of its files do not
  bool transposed_ = false;  ///< weights of linear layers are [in, out]
  ThreadPool threads_;
  std::map<std::string, Change> changes_;
  const io::TensorView* read_ = nullptr;   ///< the last tensor, whose memory can go
  const io::TensorView* whole_ = nullptr;  ///< what stands in its place
  std::vector<float> a_, b_;
  int64_t rank_ = 0;
  std::vector<std::byte> bytes_;
};

/// How floating values become a dtype.
RowEncoding row_encoding(DType dtype, int64_t columns);

}  // namespace hearth::hub
