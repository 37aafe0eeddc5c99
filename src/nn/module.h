#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/threads.h"
#include "ir/graph.h"
#include "ops/matmul/quantized.h"

namespace hearth::nn {

/// How a weight starts. Random draws are Philox of (seed, weight name, element): independent of everything
/// else.
struct Init {
  enum class Kind : uint8_t { constant, uniform, normal };
  Kind kind = Kind::constant;
  /// The constant, the bound of U(-bound, bound), or the standard deviation.
  double scale = 0;
};

/// How a tensor lies in files of the ecosystem (torch's layout) when memory holds another order:
/// file axis j is axis file_axes[j] of memory seen as `memory_view`; then reshaped to `file_shape`.
struct FileLayout {
  Shape memory_view;
  std::vector<int> file_axes;
  Shape file_shape;
};

/// A named tensor that a model keeps between steps: a weight (trainable) or a statistic.
struct Tensor {
  std::string name;  ///< torch's state_dict name: "layer1.0.conv1.weight"
  ir::ValueId value = ir::kNone;
  Init init;
  FileLayout layout;
  bool trainable = true;
  ops::Quantization quantized = ops::Quantization::none;  ///< then it is stored in the parts of that
  bool adapter = false;    ///< a low-rank matrix: no part of the model's own files
  bool is_table = false;   ///< made by Builder::table
  bool is_moving = false;  ///< a running mean or variance that training moves
};

/// The last parts of full names ("q_proj"), each once, in their order.
std::vector<std::string> short_names(const std::vector<std::string>& modules);

/// Whether a matrix lies in files the other way round.
bool is_transposed(const FileLayout& layout);
/// Whether memory order is file order.
bool is_in_file_order(const FileLayout& layout);
/// Copies between memory order and file order (`num_elements` floats).
void to_file_order(const FileLayout& layout, const float* memory, float* file);
void from_file_order(const FileLayout& layout, const float* file, float* memory);
/// Of a tensor whose rows are patches as in Builder::Linear::out_patch; 0: in file order.
FileLayout layout_of_patches(const Shape& shape, int64_t patch);

/// Draws a weight's first values; only what memory holds in another order than files is in memory twice.
/// Every value depends on (seed, name, place in the file) alone, not on the number of threads.
void initialize(const Tensor& tensor, uint64_t seed, std::span<float> memory, ThreadPool& threads);

/// Whether a tensor is a module's, or is called so itself: "layer1" has "layer1.0.conv1.weight".
bool is_under(std::string_view tensor, std::string_view module);

/// Low-rank adaptation (Hu et al. 2021, arXiv 2106.09685): the model's own weights are frozen, and a linear
/// layer that is a target gives base(x) + scale * B(A(dropout(x))). A module's name is its full one or the
/// end of it after a dot: "q_proj", "layers.0.mlp.up_proj".
struct Adapter {
  /// What becomes of one module.
  struct Change {
    int64_t rank = 0;  ///< of the matrices beside a linear layer; 0: there are none
    double scale = 1;
    bool whole = false;  ///< its own weights train
  };
  int64_t rank = 0;  ///< 0: no adapter, every weight trains
  double scale = 1;
  double dropout = 0;
  std::vector<std::string> targets;  ///< linear layers; empty: every one
  std::vector<std::string> whole;    ///< modules whose own weights train nevertheless
  /// What a file says of each module, by its full name, in place of rank, scale and whole, and of targets
  /// unless they are empty; none: those hold. `rule_name` is the file in messages.
  std::function<Change(std::string_view module)> rule;
  std::string rule_name;
  /// Whether that file is of layers whose weights files hold as [in, out] (PEFT's fan_in_fan_out).
  bool transposed = false;
  /// What its files put before the names of modules: PEFT's, unless they are diffusers'.
  std::string file_prefix = "base_model.model.";
  /// How the frozen weights of linear layers are stored.
  ops::Quantization quantized = ops::Quantization::none;

  /// Of a linear layer, or of the weights of another module.
  Change change_of(std::string_view module) const;
};

/// UserError for an adapter's file that says `transposed` of a model that is not.
[[noreturn]] void refuse_transposed(std::string_view file);

/// Grows a graph layer by layer. Activations of images are NHWC. Every layer takes and returns a value; names
/// are torch's, made of nested scopes: scope("layer1.0") + conv("conv1") makes "layer1.0.conv1.weight". A
/// layer that is named as one before it has the same weights.
class Builder {
 public:
  enum class Mode : uint8_t { train, eval };
  Builder(ir::Graph& graph, Mode mode, uint64_t seed, Adapter adapter = {})
      : graph_(graph), mode_(mode), seed_(seed), adapter_(std::move(adapter)) {}

  struct Conv {
    int64_t out_channels = 0;
    int64_t kernel = 3;
    int64_t stride = 1;
    int64_t padding = 1;
    bool bias = false;
    /// Kaiming normal over fan-out (ResNet) instead of torch's default uniform.
    bool kaiming_fan_out = false;
    int64_t dilation = 1;
    /// They share the channels evenly; as many as channels of the input: depthwise.
    int64_t groups = 1;
    /// Standard deviation of a normal start, of the bias at 0; 0: the starts above.
    double normal = 0;
    /// Where a bias starts; none: as in torch.
    std::optional<double> bias_start = {};
    /// With stride 2 and an even kernel: files hold it as a convolution of half the size over blocks of 2 x 2
    /// pixels, whose channels are those of the pixels one column after the other (YOLOX's focus).
    bool of_blocks = false;
  };
  struct ConvTranspose {
    int64_t out_channels = 0;
    int64_t kernel = 2;
    int64_t stride = 2;
    int64_t padding = 0;
    /// Of the output; 0: (in - 1) stride - 2 padding + kernel, which up to stride - 1 more may follow.
    int64_t out_h = 0;
    int64_t out_w = 0;
    bool bias = true;
  };

  /// Before the first layer: modules whose weights do not train, and whose batch norms use their running
  /// statistics.
  void freeze(std::vector<std::string> modules) { kept_ = std::move(modules); }
  ir::ValueId input(std::string_view name, ir::Type type);
  ir::ValueId conv(std::string_view name, ir::ValueId in, const Conv& options);
  /// Transposed convolution: the gradient of the input of a convolution as a layer (torch's ConvTranspose2d).
  ir::ValueId conv_transpose(std::string_view name, ir::ValueId in, const ConvTranspose& options);
  struct BatchNorm {
    double eps = 1e-5;
    double momentum = 0.1;
    /// Statistics, weight and bias stay as they are, as torchvision's FrozenBatchNorm2d.
    bool frozen = false;
  };
  ir::ValueId batch_norm(std::string_view name, ir::ValueId in) { return batch_norm(name, in, {}); }
  ir::ValueId batch_norm(std::string_view name, ir::ValueId in, const BatchNorm& options);
  ir::ValueId group_norm(std::string_view name, ir::ValueId in, int64_t groups, double eps = 1e-5);
  struct Linear {
    bool bias = true;
    /// Standard deviation of a normal start; 0: torch's uniform one.
    double normal = 0;
    /// How the weight starts in place of both, with a bias of 0.
    std::optional<Init> start = {};
    /// Files hold the weight as [in, out], as transformers' Conv1D does; it cannot be quantized.
    bool transposed = false;
    /// Files hold the weight in this shape, as that of a convolution over patches; it is not quantized.
    Shape file_shape = {};
    /// Outputs are square patches of this side in the order (channel, y, x), in files (y, x, channel); the
    /// weight is not quantized. 0: they are not.
    int64_t out_patch = 0;
  };
  /// Xavier's uniform start (Glorot and Bengio 2010) of a linear layer of these sizes.
  static Init xavier(int64_t in_features, int64_t out_features);
  ir::ValueId linear(std::string_view name, ir::ValueId in, int64_t out_features) {
    return linear(name, in, out_features, {});
  }
  ir::ValueId linear(std::string_view name, ir::ValueId in, int64_t out_features, const Linear& options);
  /// A table [num_rows, size] that is read by ids or multiplied by.
  ir::ValueId table(std::string_view name, int64_t num_rows, int64_t size, double normal);
  ir::ValueId rms_norm(std::string_view name, ir::ValueId in, double eps, double offset = 0);
  ir::ValueId layer_norm(std::string_view name, ir::ValueId in, double eps = 1e-5);
  /// f32 memory that outlives a run but is no part of the model: it starts as zeros and no file holds it.
  ir::ValueId memory(std::string_view name, const Shape& shape);
  ir::ValueId relu(ir::ValueId in);
  ir::ValueId add(ir::ValueId a, ir::ValueId b);
  /// Along the last axis.
  ir::ValueId concat(std::vector<ir::ValueId> values);
  ir::ValueId dropout(std::string_view name, ir::ValueId in, double rate);
  ir::ValueId max_pool(ir::ValueId in, int64_t kernel, int64_t stride, int64_t padding = 0);
  ir::ValueId global_avg_pool(ir::ValueId in);
  /// Nearest or bilinear, as torch's interpolate; `align_corners` for bilinear alone.
  ir::ValueId resize(ir::ValueId in, int64_t height, int64_t width, bool linear, bool align_corners = false);
  /// [N, H, W, C] -> [N, H*W*C]; a following `linear` keeps torch's channel-first column order in files.
  ir::ValueId flatten(ir::ValueId in);
  /// Output 0 of an operation that has no layer of its own.
  ir::ValueId op(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attrs attrs = {}) {
    return apply(op, std::move(inputs), std::move(attrs), op);
  }

  /// Prefixes names while alive.
  class Scope {
   public:
    Scope(Builder& builder, std::string_view name);
    ~Scope() { builder_.prefix_.resize(length_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Builder& builder_;
    size_t length_;
  };

  Mode mode() const { return mode_; }
  ir::Graph& graph() { return graph_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// After the last layer: UserError for a name of the adapter that no module has.
  void check_adapter() const;

 private:
  void check_rule() const;
  ir::ValueId tensor(const std::string& name, const Shape& shape, Init init, FileLayout layout,
                     bool trainable);
  ir::ValueId add_tensor(Tensor tensor, ir::Type type, ir::Role role);
  bool is_frozen(std::string_view tensor_name);
  bool is_kept(std::string_view tensor_name) const;
  FileLayout linear_layout(ir::ValueId in, const Shape& shape, const Linear& options) const;
  /// in W^T for a frozen W in a few bits.
  ir::ValueId quantized_linear(std::string_view name, ir::ValueId in, const FileLayout& layout);
  /// `out` = the layer of `in`, with its adapter if it is a target; the layout is that of its weight.
  ir::ValueId adapt(std::string_view name, ir::ValueId in, ir::ValueId out, FileLayout layout,
                    int64_t out_patch);
  /// A convolution's weight in memory, which files hold as [last axis, third axis, kernel, kernel].
  ir::ValueId conv_weight(std::string_view name, const Shape& shape, Init init, bool of_blocks = false);
  ir::ValueId plain_tensor(const std::string& name, const Shape& shape, Init init, bool trainable = true);
  std::string full(std::string_view name, std::string_view part = "") const;
  ir::ValueId apply(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attrs attrs,
                    std::string_view name);

  ir::Graph& graph_;
  Mode mode_;
  uint64_t seed_;
  std::string prefix_;
  std::vector<Tensor> tensors_;
  Adapter adapter_;
  std::vector<std::string> kept_;     ///< modules that freeze() named
  std::vector<std::string> linears_;  ///< with an adapter: full names of linear layers
  std::vector<std::string> modules_;  ///< and of all that have weights
  int num_dropouts_ = 0;
};

}  // namespace hearth::nn
