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

/// Format in which the rows of a tensor are written.
struct RowEncoding {
  int64_t row_bytes = 0;
  /// Maximum magnitude of a value; larger values are an error.
  float max_magnitude = std::numeric_limits<float>::infinity();
  std::function<void(std::span<float> values, std::byte* out)> write;  ///< writes one row in this format
  std::function<int64_t(int64_t row)> target_row =
      /// Returns the row in the output at which a row is written; empty: the order of rows is unchanged.
      {};
};

/// Reader of a model's weights that merges its adapter, W + scale * B A, one tensor in memory at a time.
class ModelWeights {
 public:
  /// Opens the files. Throws a UserError if the adapter does not belong to the model.
  ModelWeights(const ModelFolder& model, int num_threads);

  /// Returns the tensors of the base model; their bytes are not merged.
  const io::WeightFiles& files() const { return base_; }
  /// Returns the number of tensors that the adapter changes.
  int64_t num_changed() const { return std::ssize(changes_); }

  /// Lets a function change the values of the base model's tensor `name`, after merging and before encoding.
  /// `values`: the full tensor in the order of the files.
  void edit(const std::string& name, std::function<void(std::span<float> values)> change);
  /// Returns all values of a tensor after merging, without the change of edit().
  std::vector<float> merged(const io::TensorView& weight);
  /// Returns the bytes of a tensor after merging and encoding, valid until the next call. Rows are along the
  /// first axis; a vector is one row. Throws a UserError for values that are not finite or exceed
  /// encoding.max_magnitude.
  std::span<const std::byte> encoded(const io::TensorView& weight, const RowEncoding& encoding);
  /// Returns the merged bytes of a tensor in a floating-point dtype, valid until the next call.
  std::span<const std::byte> bytes_of(const io::TensorView& weight, DType dtype);

 private:
  /// Change of a weight by the adapter: low-rank matrices, or a replacement (modules_to_save).
  struct Change {
    const io::TensorView* a = nullptr;
    const io::TensorView* b = nullptr;
    /// Tensor that replaces the weight; null: the change is scale * B A.
    const io::TensorView* whole = nullptr;
    double scale = 0;  ///< factor of B A: alpha / rank
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
  /// Prefix of tensor names that the model's files omit, see name_in(); empty if none.
  std::string omitted_prefix_;
  bool transposed_ = false;  ///< true if weights of linear layers are [in, out]
  ThreadPool threads_;
  std::map<std::string, Change> changes_;
  std::map<std::string, std::function<void(std::span<float>)>> edits_;
  std::vector<float> edited_;  ///< values of the prepared tensor if edits_ has it; otherwise empty
  /// Tensor of the last call; its mapped memory is released by the next call.
  const io::TensorView* read_ = nullptr;
  const io::TensorView* source_ = nullptr;  ///< read_, or the tensor that replaces it
  std::vector<float> a_, b_;
  int64_t rank_ = 0;
  std::vector<std::byte> bytes_;
};

/// Returns the encoding of rows of `columns` values in a floating-point dtype.
RowEncoding row_encoding(DType dtype, int64_t columns);

}  // namespace hearth::hub
