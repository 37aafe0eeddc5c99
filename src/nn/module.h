#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/choices.h"
#include "base/qat_scheme.h"
#include "base/threads.h"
#include "ir/graph.h"
#include "ops/matmul/quantized.h"

namespace hearth::nn {

/// Initialization of a weight. Random numbers are Philox of (seed, weight name, element index), so they do
/// not depend on other weights.
struct Init {
  enum class Kind : uint8_t { constant, uniform, normal };
  Kind kind = Kind::constant;
  /// The value (Kind::constant), the bound of U(-bound, bound), or the standard deviation (Kind::normal).
  double scale = 0;
};

/// Order of a tensor's elements in files (torch's layout), if it differs from the order in memory:
/// view memory as shape `memory_view`, permute so that file axis j is memory axis file_axes[j], then
/// reshape to `file_shape`.
struct FileLayout {
  Shape memory_view;
  std::vector<int> file_axes;
  Shape file_shape;
};

/// A named tensor that a model keeps between steps: a weight (trainable) or a running statistic.
struct Tensor {
  std::string name;  ///< name in torch's state_dict: "layer1.0.conv1.weight"
  ir::ValueId value = ir::kNone;
  Init init;
  FileLayout layout;
  bool trainable = true;
  /// Quantization of the weight, which is then stored in several tensors; none: stored in one tensor.
  ops::Quantization quantized = ops::Quantization::none;
  bool adapter = false;               ///< True if it is a low-rank matrix of an adapter
  bool is_table = false;              ///< True if made by Builder::table
  bool is_running_statistic = false;  ///< True if it is a running mean or variance that training updates
};

/// Returns the distinct last components of full module names ("q_proj" of "layers.0.q_proj"), in order of
/// first occurrence.
std::vector<std::string> short_names(const std::vector<std::string>& modules);

/// True if files store the matrix transposed.
bool is_transposed(const FileLayout& layout);
/// True if elements have the same order in memory and in files.
bool is_in_file_order(const FileLayout& layout);
/// Copies all elements (f32) from memory order to file order.
void to_file_order(const FileLayout& layout, const float* memory, float* file);
/// Copies all elements (f32) from file order to memory order.
void from_file_order(const FileLayout& layout, const float* file, float* memory);
/// Returns the layout of a tensor whose rows are pixels of patches (Builder::Linear::out_patch). With patch =
/// 0, memory order equals file order.
FileLayout layout_of_patches(const Shape& shape, int64_t patch);

/// Computes the initial values of a weight. Each value depends only on (seed, name, position in the file),
/// not on the number of threads. Allocates a second buffer only if memory and file differ in element order.
void initialize(const Tensor& tensor, uint64_t seed, std::span<float> memory, ThreadPool& threads);

/// True if a tensor belongs to a module, or has the module's name: "layer1.0.conv1.weight" is under "layer1".
bool is_under(std::string_view tensor, std::string_view module);

/// Low-rank adaptation (LoRA, Hu et al. 2021, arXiv 2106.09685): the model's weights are frozen, and each
/// target linear layer computes base(x) + scale * B(A(dropout(x))). A module is named by its full name or by
/// a suffix after a dot: "q_proj", "layers.0.mlp.up_proj".
struct Adapter {
  /// Changes that the adapter makes to one module.
  struct Change {
    int64_t rank = 0;  ///< rank of the low-rank matrices of a linear layer; 0: no such matrices
    double scale = 1;
    bool whole = false;  ///< True if the module's full weights are trained
  };
  int64_t rank = 0;  ///< 0: no adapter, all weights are trained
  double scale = 1;
  double dropout = 0;
  std::vector<std::string> targets;  ///< linear layers to adapt; empty: all
  std::vector<std::string> whole;    ///< modules whose full weights are trained too (PEFT's modules_to_save)
  /// Returns the change of the module with this full name, for an adapter that was read from a file. If set,
  /// it replaces `rank`, `scale` and `whole`, and also `targets` if they are empty. `rule_name`: name of the
  /// adapter's file in messages.
  std::function<Change(std::string_view module)> rule;
  std::string rule_name;
  /// True if the adapter's file is for layers whose weights are stored as [in, out] (PEFT's fan_in_fan_out).
  bool transposed = false;
  /// Prefix of module names in the adapter's files: PEFT's by default; diffusers uses another one.
  std::string file_prefix = "base_model.model.";
  /// Quantization of the frozen weights of linear layers.
  ops::Quantization quantized = ops::Quantization::none;

  /// Returns what the adapter changes in a module with weights, such as a linear layer.
  Change change_of(std::string_view module) const;
};

/// Throws a UserError: `file`, an adapter, is for transposed weights, but the model's weights are not stored
/// transposed.
[[noreturn]] void refuse_transposed(std::string_view file);

/// Number of channels of a layer and of all layers that are coupled with it (passes/channels.h).
struct Width {
  std::string layer;
  int64_t channels = 0;
};

/// Prefix of the names of a teacher's tensors (Builder::TeacherScope).
inline constexpr std::string_view kTeacherPrefix = "teacher.";

/// Builds a graph layer by layer. Activations of images are NHWC. Each layer takes and returns a value. Names
/// are torch's, composed of nested scopes: scope("layer1.0") + conv("conv1") creates "layer1.0.conv1.weight".
/// Layers with the same name share their weights.
class Builder {
 public:
  enum class Mode : uint8_t { train, eval };
  Builder(ir::Graph& graph, Mode mode, uint64_t seed, Adapter adapter = {})
      : graph_(graph), mode_(mode), seed_(seed), adapter_(std::move(adapter)) {}

  /// Options of a convolution; lengths in pixels.
  struct Conv {
    int64_t out_channels = 0;
    int64_t kernel = 3;
    int64_t stride = 1;
    int64_t padding = 1;
    bool bias = false;
    /// Kaiming normal initialization over fan-out (ResNet) instead of torch's default uniform.
    bool kaiming_fan_out = false;
    int64_t dilation = 1;
    /// Number of groups (grouped convolution); equal to the number of input channels: depthwise.
    int64_t groups = 1;
    /// If not 0: standard deviation of a normal initialization, with bias 0. Replaces kaiming_fan_out and the
    /// default.
    double normal = 0;
    /// Initial value of the bias; nullopt: torch's default.
    std::optional<double> bias_init = {};
    /// For stride 2 and an even kernel: files store the weight as a convolution with half the kernel
    /// size over space-to-depth blocks of 2 x 2 pixels, whose channels are ordered by columns
    /// (YOLOX's Focus layer).
    bool space_to_depth = false;
  };
  /// Options of a transposed convolution; lengths in pixels.
  struct ConvTranspose {
    int64_t out_channels = 0;
    int64_t kernel = 2;
    int64_t stride = 2;
    int64_t padding = 0;
    /// Output size; 0: (in - 1) * stride - 2 * padding + kernel. May be up to stride - 1 larger.
    int64_t out_h = 0;
    int64_t out_w = 0;
    bool bias = true;
  };

  /// Freezes modules: their weights are not trained, and their batch norms use the running statistics. Call
  /// it before the first layer.
  void freeze(std::vector<std::string> modules) { frozen_modules_ = std::move(modules); }
  /// Rounds weights and inputs of linear layers as a scheme stores them (ops::fake_quantize,
  /// fake_quantize_groups). Does not round layers of train.freeze, layers without Linear::is_in_block, and
  /// layers whose number of input features is not a multiple of the scheme's group. With an adapter, frozen
  /// weights are rounded and the adapter is added to the result, as torchao and torchtune do. Call it before
  /// the first layer.
  void round_linear(const QatRounding& rounding) { rounding_ = rounding; }
  /// Throws a UserError if a scheme is set, but no layer is rounded. Call it after the last layer.
  void check_rounding() const;
  /// Sets the precision of the linear layers with Linear::is_in_block that are not quantized. Call it before
  /// the first layer.
  void multiply_in(MatmulPrecision precision) { matmul_precision_ = precision; }
  /// Adds a graph input.
  ir::ValueId input(std::string_view name, ir::Type type);
  ir::ValueId conv(std::string_view name, ir::ValueId in, const Conv& options);
  /// Adds a transposed convolution (torch's ConvTranspose2d), which computes the gradient of a convolution
  /// with respect to its input.
  ir::ValueId conv_transpose(std::string_view name, ir::ValueId in, const ConvTranspose& options);
  struct BatchNorm {
    double eps = 1e-5;
    double momentum = 0.1;
    /// True if statistics, weight and bias are constant, as in torchvision's FrozenBatchNorm2d.
    bool frozen = false;
  };
  ir::ValueId batch_norm(std::string_view name, ir::ValueId in) { return batch_norm(name, in, {}); }
  ir::ValueId batch_norm(std::string_view name, ir::ValueId in, const BatchNorm& options);
  ir::ValueId group_norm(std::string_view name, ir::ValueId in, int64_t groups, double eps = 1e-5);
  struct Linear {
    bool bias = true;
    /// Standard deviation of a normal initialization; 0: torch's default uniform.
    double normal = 0;
    /// Initialization of the weight, with bias 0. Replaces `normal` and the default.
    std::optional<Init> start = {};
    /// True if files store the weight as [in, out], as transformers' Conv1D; such a weight
    /// cannot be quantized.
    bool transposed = false;
    /// Shape of the weight in files, for example of a convolution over patches; such a weight
    /// is not quantized.
    Shape file_shape = {};
    /// If not 0: outputs are square patches with this side, in the order (channel, y, x) in memory and (y, x,
    /// channel) in files; such a weight is not quantized.
    int64_t out_patch = 0;
    /// True for a layer of a transformer block, to which multiply_in() and round_linear() apply: not a
    /// router, embedding or output layer.
    bool is_in_block = false;
  };
  /// Returns Xavier's (Glorot and Bengio 2010) uniform initialization of a linear layer.
  static Init xavier(int64_t in_features, int64_t out_features);
  ir::ValueId linear(std::string_view name, ir::ValueId in, int64_t out_features) {
    return linear(name, in, out_features, {});
  }
  ir::ValueId linear(std::string_view name, ir::ValueId in, int64_t out_features, const Linear& options);
  /// Adds an embedding table [num_rows, size]. `normal`: standard deviation of the normal initialization.
  ir::ValueId table(std::string_view name, int64_t num_rows, int64_t size, double normal);
  ir::ValueId rms_norm(std::string_view name, ir::ValueId in, double eps, double offset = 0);
  ir::ValueId layer_norm(std::string_view name, ir::ValueId in, double eps = 1e-5);
  /// Adds an f32 state that persists between runs of a program, such as a KV cache. It is initially zero and
  /// not part of the model's files.
  ir::ValueId memory(std::string_view name, const Shape& shape);
  ir::ValueId relu(ir::ValueId in);
  ir::ValueId add(ir::ValueId a, ir::ValueId b);
  /// Concatenates values along the last axis.
  ir::ValueId concat(std::vector<ir::ValueId> values);
  ir::ValueId dropout(std::string_view name, ir::ValueId in, double rate);
  ir::ValueId max_pool(ir::ValueId in, int64_t kernel, int64_t stride, int64_t padding = 0);
  ir::ValueId global_avg_pool(ir::ValueId in);
  /// Resizes by nearest-neighbor or bilinear interpolation, as torch's interpolate; `align_corners`
  /// for bilinear only.
  ir::ValueId resize(ir::ValueId in, int64_t height, int64_t width, bool linear, bool align_corners = false);
  /// Reshapes [N, H, W, C] to [N, H*W*C]. A following linear() stores its columns in torch's order [C, H, W]
  /// in files.
  ir::ValueId flatten(ir::ValueId in);
  /// Applies any op by name, for ops without a function of this class, and returns its output 0.
  ir::ValueId op(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attrs attrs = {}) {
    return apply(op, std::move(inputs), std::move(attrs), op);
  }

  /// During its lifetime, names of layers get a prefix.
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

  /// While this object exists, the builder adds layers of a teacher: frozen, in Mode::eval and without an
  /// adapter. Their tensors are in teacher_tensors(), and their names start with kTeacherPrefix. `quantized`:
  /// quantization of the weights of linear layers.
  class TeacherScope {
   public:
    explicit TeacherScope(Builder& builder, ops::Quantization quantized = ops::Quantization::none);
    ~TeacherScope() { exchange(); }
    TeacherScope(const TeacherScope&) = delete;
    TeacherScope& operator=(const TeacherScope&) = delete;

   private:
    void exchange();
    Builder& builder_;
    Mode mode_ = Mode::eval;
    std::string prefix_;
    Adapter adapter_;
  };
  const std::vector<Tensor>& teacher_tensors() const { return teacher_tensors_; }

  Mode mode() const { return mode_; }
  ir::Graph& graph() { return graph_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Removes output channels of layers and everything that depends on them, so that each layer has the given
  /// number of channels. Call it after the last layer. Throws a UserError for a layer that the model does not
  /// have (in Mode::train; other modes may lack auxiliary layers), or whose channels cannot be removed.
  void narrow(std::span<const Width> widths);
  /// Throws a UserError if the adapter names a module that does not exist. Call it after the last layer.
  void check_adapter() const;

 private:
  void check_rule() const;
  ir::ValueId tensor(const std::string& name, const Shape& shape, Init init, FileLayout layout,
                     bool trainable);
  ir::ValueId add_tensor(Tensor tensor, ir::Type type, ir::Role role);
  bool is_frozen(std::string_view tensor_name);
  bool is_in_frozen_module(std::string_view tensor_name) const;
  FileLayout linear_layout(ir::ValueId in, const Shape& shape, const Linear& options) const;
  /// Returns `in` * W^T for a frozen, quantized weight W.
  ir::ValueId quantized_linear(std::string_view name, ir::ValueId in, const FileLayout& layout);
  /// If the layer is a target of the adapter, returns out + scale * B(A(dropout(in))); otherwise `out`, the
  /// output of the linear layer. `layout`: layout of the layer's weight.
  ir::ValueId adapt(std::string_view name, ir::ValueId in, ir::ValueId out, FileLayout layout,
                    int64_t out_patch);
  /// Returns the input `counter` of the graph: the step and the index of the micro-batch.
  ir::ValueId counter();
  /// True if round_linear() rounds a layer with this weight.
  bool rounds(ir::ValueId weight) const;
  ir::ValueId rounded_weight(std::string_view name, ir::ValueId weight);
  /// Returns the rounded input of a layer, or `in` itself if the scheme does not round inputs.
  ir::ValueId rounded_input(std::string_view name, ir::ValueId in);
  ir::ValueId round_groups(std::string_view name, ir::ValueId value, GroupFormat format, int64_t group);
  /// Adds the weight of a convolution. Its shape in files is [shape[3], shape[2], kernel, kernel].
  ir::ValueId conv_weight(std::string_view name, const Shape& shape, Init init, bool space_to_depth = false);
  ir::ValueId plain_tensor(const std::string& name, const Shape& shape, Init init, bool trainable = true);
  std::string full(std::string_view name, std::string_view part = "") const;
  ir::ValueId apply(std::string_view op, std::vector<ir::ValueId> inputs, ir::Attrs attrs,
                    std::string_view name);

  ir::Graph& graph_;
  Mode mode_;
  uint64_t seed_;
  std::string prefix_;
  std::vector<Tensor> tensors_, teacher_tensors_;
  bool is_teacher_ = false;
  Adapter adapter_;
  QatRounding rounding_;
  bool has_rounded_ = false;                                             ///< true if a layer is rounded
  ir::ValueId last_input_ = ir::kNone, last_rounded_input_ = ir::kNone;  ///< of the last rounded_input()
  MatmulPrecision matmul_precision_ = MatmulPrecision::same;             ///< see multiply_in()
  std::vector<std::string> frozen_modules_;                              ///< modules passed to freeze()
  std::vector<std::string> linears_;  ///< with an adapter: full names of the linear layers
  std::vector<std::string> modules_;  ///< with an adapter: full names of all modules with weights
  int num_dropouts_ = 0;
};

}  // namespace hearth::nn
