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

/// Output format of the rows of a tensor.
struct RowEncoding {
  int64_t row_bytes = 0;
  float max_magnitude = std::numeric_limits<float>::infinity();        ///< max magnitude of a value
  std::function<void(std::span<float> values, std::byte* out)> write;  ///< encodes a row
  std::function<int64_t(int64_t row)> target_row =
      {};  ///< returns the output index of a row; empty: unchanged
};

/// The weights of a model, merged with its adapter (W + scale * B A), one tensor in memory at a time.
class ModelWeights {
 public:
  /// Opens the files. Throws a UserError if the adapter does not belong to the model.
  ModelWeights(const ModelFolder& model, int num_threads);

  /// Returns the tensors of the base model; their bytes are not merged.
  const io::WeightFiles& files() const { return base_; }
  /// Returns the number of tensors that the adapter changes.
  int64_t num_changed() const { return std::ssize(changes_); }

  /// Returns the merged and encoded bytes of a tensor, valid until the next call. A row runs over all axes
  /// but the first; a vector is one row. Throws a UserError for values that are not finite or above
  /// encoding.largest.
  std::span<const std::byte> encoded(const io::TensorView& weight, const RowEncoding& encoding);
  /// Returns the merged bytes of a tensor in a floating-point dtype, valid until the next call.
  std::span<const std::byte> bytes_of(const io::TensorView& weight, DType dtype);

 private:
  /// Change of a weight by the adapter: low-rank matrices, or a replacement (modules_to_save).
  struct Change {
    const io::TensorView* a = nullptr;
    const io::TensorView* b = nullptr;
    const io::TensorView* whole = nullptr;  ///< replacement; null: a and b
    double scale = 0;                       ///< factor of B A
  };
  void open_adapter(const ModelFolder& model);
  void open_denoiser_adapter(const ModelFolder& model);
  void detect_gpt2(const fs::path& file, const AdapterConfig& config);
  void assign(const io::TensorView& tensor);
  void check(const std::string& name, const Change& change, int64_t rank) const;
  void check_complete(const ModuleRule& rule) const;
  void check_untied(const fs::path& config) const;
  void check_shape(const io::TensorView& tensor, const Shape& wanted) const;
  void prepare(const io::TensorView& weight);
  std::vector<float> rows(const io::TensorView& weight, Range rows) const;

  fs::path path_;  ///< weights file of the adapter
  std::optional<io::WeightFiles> adapter_;
  std::unique_ptr<const DenoiserAdapter> denoiser_;  ///< adapter of a denoiser, instead of adapter_
  io::WeightFiles base_;
  double scale_ = 0;
  std::string omitted_prefix_;  ///< prefix of the model's tensor names that its files omit
  bool transposed_ = false;     ///< weights of linear layers are [in, out]
  ThreadPool threads_;
  std::map<std::string, Change> changes_;
  const io::TensorView* read_ = nullptr;    ///< last tensor, whose mapped memory is released by the next call
  const io::TensorView* source_ = nullptr;  ///< read_ or its replacement
  std::vector<float> a_, b_;
  int64_t rank_ = 0;
  std::vector<std::byte> bytes_;
};

/// Returns the encoding of rows of `columns` values in a floating-point dtype.
RowEncoding row_encoding(DType dtype, int64_t columns);

}  // namespace hearth::hub
