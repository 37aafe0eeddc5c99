// Fused LM head and cross-entropy on a GPU, chunk by chunk of tokens: a matmul writes the chunk's logits to
// the workspace; one block per token computes its loss and overwrites the logits with their gradients; two
// more matmuls compute dx from the gradients and add to dweight. With a teacher, the block first moves the
// logits of the teacher's tokens out of the row. Only the logits of one chunk are in memory.
#include "ops/loss/loss.h"
#include "ops/loss/row_softmax.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_kernel.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Tokens per chunk on a GPU, as a multiple of the attribute `rows`. Each chunk reads and writes the full
/// weight gradient, which takes a GPU as long as the matmuls of hundreds of tokens.
constexpr int64_t kChunkOfRows = 4;

/// Shapes of the LM head of a node, which is computed in chunks of `chunk` tokens.
struct Head {
  int64_t tokens, width, vocab, chunk;
  float softcap;
  DType dtype;
  HeadTeacher teacher;

  Head(const NodeView& node, size_t num_required)
      : tokens(node.in_type(HeadIn::x).shape[0]),
        width(node.in_type(HeadIn::x).shape[1]),
        vocab(node.in_type(HeadIn::weight).shape[0]),
        chunk(std::min(tokens, kChunkOfRows * node.attrs.integer_or("rows", kHeadRows))),
        softcap(static_cast<float>(node.attrs.real_or("softcap", 0))),
        dtype(node.in_type(HeadIn::x).dtype),
        teacher(node, num_required) {
    if (node.in_type(HeadIn::weight).dtype != dtype) refuse_storage_type(node.in_type(HeadIn::weight).dtype);
  }
  /// True if the rows of each chunk are aligned as the BLAS library requires.
  bool is_aligned() const { return chunk * width * element_bytes() % 64 == 0; }
  int64_t element_bytes() const { return dtype == DType::f32 ? 4 : 2; }
  /// Returns the row stride, in elements of the dtype, of the gradients of the logits: each row overwrites
  /// the f32 logits of its token.
  int64_t gradient_row() const { return vocab * 4 / element_bytes(); }
  int64_t logits_bytes() const { return ceil_div(chunk * vocab * 4, 256) * 256; }
  /// Returns the bytes of the student's logits of the teacher's tokens.
  int64_t listed_bytes() const { return ceil_div(chunk * teacher.top_k * 4, 256) * 256; }

  MatmulShape logits(int64_t rows) const {
    return {.m = static_cast<int>(rows),
            .n = static_cast<int>(vocab),
            .k = static_cast<int>(width),
            .a_row = width,
            .b_term = 1,
            .b_column = width,
            .c_row = vocab};
  }
  MatmulShape dx(int64_t rows) const {
    return {.m = static_cast<int>(rows),
            .n = static_cast<int>(width),
            .k = static_cast<int>(vocab),
            .a_row = gradient_row(),
            .b_term = width,
            .c_row = width};
  }
  MatmulShape dweight(int64_t rows) const {
    return {.m = static_cast<int>(vocab),
            .n = static_cast<int>(width),
            .k = static_cast<int>(rows),
            .a_row = 1,
            .a_term = gradient_row(),
            .b_term = width,
            .c_row = width};
  }
};

/// The three matmuls of a chunk of `rows` tokens.
struct ChunkKernels {
  int64_t rows;
  ChosenMatmul logits, dx, dweight;

  ChunkKernels(const Head& head, int64_t count, const ir::Attrs& attrs)
      : rows(count),
        logits(head.logits(count), head.dtype, DType::f32, way(head, attrs, 0)),
        dx(head.dx(count), head.dtype, head.dtype, way(head, attrs, 1)),
        dweight(head.dweight(count), head.dtype, DType::f32, way(head, attrs, 2)) {}
  static std::string_view way(const Head& head, const ir::Attrs& attrs, size_t index) {
    return head.is_aligned() ? variant_at(attrs, index) : "";
  }
  int64_t workspace_bytes() const {
    return std::max({logits.workspace_bytes(), dx.workspace_bytes(), dweight.workspace_bytes()});
  }
};

/// Arrays with an element per token; null if the op does not have the array.
struct Tokens {
  const int32_t* labels;
  float* losses;
  float* lse;
  const float* known_lse;
  const float* dlosses;
  int64_t dloss_stride;        ///< 0 if all tokens share one dloss
  const int32_t* teacher_ids;  ///< [tokens, top_k]
  const float* teacher_logps;
  float* listed;  ///< of a chunk: student's logits of the teacher's tokens, [chunk, top_k]
  int top_k;      ///< 0: no teacher
  DistillFormula formula;
};
Tokens tokens_from(const Tokens& all, int64_t first) {
  const auto behind = [first](auto* array) { return array == nullptr ? array : array + first; };
  return {.labels = all.labels + first,
          .losses = behind(all.losses),
          .lse = behind(all.lse),
          .known_lse = behind(all.known_lse),
          .dlosses = all.dlosses == nullptr ? nullptr : all.dlosses + first * all.dloss_stride,
          .dloss_stride = all.dloss_stride,
          .teacher_ids = all.teacher_ids == nullptr ? nullptr : all.teacher_ids + first * all.top_k,
          .teacher_logps = all.teacher_logps == nullptr ? nullptr : all.teacher_logps + first * all.top_k,
          .listed = all.listed,
          .top_k = all.top_k,
          .formula = all.formula};
}

/// Applies the soft cap, except to kListedLogit.
RT_DEVICE float capped(float logit, float softcap) {
  return softcap > 0 && logit > kListedLogit ? softcap * tanhf(logit / softcap) : logit;
}

/// Number of logits per load of a thread, if the vocabulary size is a multiple of it.
constexpr int kHeadWide = 4;

/// Computes the softmax statistics of one token's logits, after the soft cap, with n logits per load. vocab
/// must be a multiple of n. All threads of the block get the result.
template <int n>
RT_DEVICE RowSoftmax softmax_of_logits(const float* row, int vocab, float softcap) {
  constexpr float kLowest = -3.4e38F;
  float row_max = kLowest, sum = 0;
  const int first = static_cast<int>(threadIdx.x) * n;
  for (int v = first; v < vocab; v += kBlockThreads * n) {
    const auto logits = rt::load<float, n>(row + v);
    RT_UNROLL
    for (int e = 0; e < n; ++e) row_max = rt::Max()(logits.at[e], row_max);
  }
  row_max = capped(rt::reduce_block(row_max, rt::Max(), kLowest), softcap);
  for (int v = first; v < vocab; v += kBlockThreads * n) {
    const auto logits = rt::load<float, n>(row + v);
    RT_UNROLL
    for (int e = 0; e < n; ++e) sum += rt::fast_exp(capped(logits.at[e], softcap) - row_max);
  }
  return {row_max, rt::reduce_block(sum, rt::Add(), 0.0F)};
}

/// Computes the gradient of each logit of one token.
struct RowGradient {
  float weight, lse, softcap;
  int label;

  RT_DEVICE float of(float raw, int v) const {
    const float logit = capped(raw, softcap);
    const float gradient = weight * (rt::fast_exp(logit - lse) - (v == label ? 1.0F : 0.0F));
    const float t = softcap > 0 ? logit / softcap : 0.0F;
    return softcap > 0 ? gradient * (1 - t * t) : gradient;
  }
};
/// Overwrites a token's logits with their gradients as T. Because T is not wider than f32, each store
/// overwrites only logits that were already read.
template <int n, typename T>
RT_DEVICE void write_gradients(float* row, int vocab, const RowGradient& gradient) {
  T* gradients = reinterpret_cast<T*>(row);
  for (int first = 0; first < vocab; first += kBlockThreads * n) {
    const int v = first + static_cast<int>(threadIdx.x) * n;
    rt::Vec<T, n> result = {};
    if (v < vocab && gradient.label >= 0) {
      const auto logits = rt::load<float, n>(row + v);
      RT_UNROLL
      for (int e = 0; e < n; ++e) result.at[e] = rt::from_float<T>(gradient.of(logits.at[e], v + e));
    }
    rt::sync_block();
    if (v < vocab) rt::store(gradients + v, result);
  }
}

/// Implementation of DistillToken's `threads` for a token that a block computes.
struct DistillBlock {
  RT_DEVICE int first() const { return static_cast<int>(threadIdx.x); }
  RT_DEVICE int step() const { return kBlockThreads; }
  RT_DEVICE float max(float value) const { return rt::reduce_block(value, rt::Max(), -3.4e38F); }
  RT_DEVICE float sum(float value) const { return rt::reduce_block(value, rt::Add(), 0.0F); }
};

/// Computes a token's loss and gradients with a teacher: moves the logits of the teacher's tokens out of the
/// row, which then contains only the tail.
template <int n, typename T>
RT_DEVICE void distill_row(float* row, int vocab, float softcap, const Tokens& tokens) {
  const int k = tokens.top_k, label = tokens.labels[blockIdx.x];
  const int32_t* ids = tokens.teacher_ids + static_cast<int64_t>(blockIdx.x) * k;
  float* listed = tokens.listed + static_cast<int64_t>(blockIdx.x) * k;
  const float of_label = label >= 0 && label < vocab ? capped(row[label], softcap) : nanf("");
  rt::sync_block();
  for (int j = static_cast<int>(threadIdx.x); j < k; j += kBlockThreads) {
    listed[j] = capped(row[ids[j]], softcap);
    row[ids[j]] = kListedLogit;
  }
  rt::sync_block();
  const float tail = softmax_of_logits<n>(row, vocab, softcap).log_sum();
  const DistillToken compared(tokens.formula,
                              {.logits = listed,
                               .logps = tokens.teacher_logps + static_cast<int64_t>(blockIdx.x) * k,
                               .k = k,
                               .tail = tail,
                               .has_tail = k < vocab},
                              DistillBlock());
  if (threadIdx.x == 0) {
    if (tokens.losses != nullptr) tokens.losses[blockIdx.x] = compared.loss(compared.lse() - of_label);
    if (tokens.lse != nullptr) tokens.lse[blockIdx.x] = compared.lse();
  }
  if (tokens.dlosses == nullptr) return;
  const float dloss = label < vocab ? tokens.dlosses[blockIdx.x * tokens.dloss_stride] : nanf("");
  write_gradients<n, T>(
      row, vocab, {.weight = dloss * compared.tail_slope(), .lse = tail, .softcap = softcap, .label = vocab});
  rt::sync_block();
  T* gradients = reinterpret_cast<T*>(row);
  const float share = dloss * (1 - tokens.formula.weight);
  bool is_listed = false;
  for (int j = static_cast<int>(threadIdx.x); j < k; j += kBlockThreads) {
    const float hit = ids[j] == label ? share : 0.0F;
    gradients[ids[j]] = rt::from_float<T>((dloss * compared.slope(j) - hit) * cap_slope(listed[j], softcap));
    is_listed |= ids[j] == label;
  }
  const bool found = rt::reduce_block(is_listed ? 1.0F : 0.0F, rt::Max(), 0.0F) > 0;
  if (threadIdx.x == 0 && !found && label < vocab) {
    const float p = dloss * compared.tail_slope() * rt::fast_exp(of_label - tail);
    gradients[label] = rt::from_float<T>((p - share) * cap_slope(of_label, softcap));
  }
}

template <int n, typename T>
RT_DEVICE void work_on_row(float* row, int vocab, float softcap, const Tokens& tokens) {
  const int label = tokens.labels[blockIdx.x];
  if (tokens.top_k > 0 && label >= 0) return distill_row<n, T>(row, vocab, softcap, tokens);
  const bool counts = label >= 0, known = label < vocab;
  float lse = 0;
  if (counts) {
    lse = tokens.known_lse != nullptr ? tokens.known_lse[blockIdx.x]
                                      : softmax_of_logits<n>(row, vocab, softcap).log_sum();
  }
  if (threadIdx.x == 0) {
    const float of_label = counts && known ? capped(row[label], softcap) : nanf("");
    if (tokens.losses != nullptr) tokens.losses[blockIdx.x] = counts ? lse - of_label : 0.0F;
    if (tokens.lse != nullptr) tokens.lse[blockIdx.x] = lse;
  }
  if (tokens.dlosses == nullptr) return;
  const float weight = tokens.dlosses[blockIdx.x * tokens.dloss_stride];
  write_gradients<n, T>(row, vocab, {.weight = weight, .lse = lse, .softcap = softcap, .label = label});
}

/// Computes a token's loss, then overwrites its logits with their gradients as T; loss and gradients are 0
/// without a label. One block per token.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    head_rows(float* logits, int64_t vocab, float softcap, Tokens tokens) {
  float* row = logits + blockIdx.x * vocab;
  if (vocab % kHeadWide == 0) {
    work_on_row<kHeadWide, T>(row, static_cast<int>(vocab), softcap, tokens);
  } else {
    work_on_row<1, T>(row, static_cast<int>(vocab), softcap, tokens);
  }
}

using HeadRows = void (*)(float*, int64_t, float, Tokens);
HeadRows head_rows_of(DType dtype) {
  if (dtype == DType::bf16) return head_rows<rt::bf16>;
  return dtype == DType::f16 ? head_rows<rt::f16> : head_rows<float>;
}

/// Arrays of a node, for all tokens; dx and dweight are null if not computed.
struct Arrays {
  const std::byte* x;
  const void* weight;
  Tokens tokens;
  std::byte* dx;
  float* dweight;
};

void run_chunk(const Head& head, const ChunkKernels& kernels, int64_t first, const Arrays& arrays,
               const KernelArgs& args) {
  gpu::Stream& stream = *args.stream;
  const int64_t at = first * head.width * head.element_bytes();
  auto* logits = reinterpret_cast<float*>(args.workspace);
  std::byte* workspace = args.workspace + head.logits_bytes() + head.listed_bytes();
  kernels.logits.launch(stream,
                        {.a = arrays.x + at, .b = arrays.weight, .c = logits, .workspace = workspace});
  Tokens tokens = tokens_from(arrays.tokens, first);
  tokens.listed = reinterpret_cast<float*>(args.workspace + head.logits_bytes());
  rt::launch(head_rows_of(head.dtype), {kernels.rows, kBlockThreads}, stream.handle(), logits, head.vocab,
             head.softcap, tokens);
  if (arrays.dx == nullptr) return;
  kernels.dx.launch(stream, {.a = logits, .b = arrays.weight, .c = arrays.dx + at, .workspace = workspace});
  if (arrays.dweight == nullptr) return;
  kernels.dweight.launch(stream, {.a = logits,
                                  .b = arrays.x + at,
                                  .residual = first > 0 ? arrays.dweight : nullptr,
                                  .c = arrays.dweight,
                                  .workspace = workspace});
}

using ArraysOf = Arrays (*)(const KernelArgs&);

/// `num_required`: see HeadTeacher.
ir::Kernel make(const NodeView& node, size_t num_required, ArraysOf arrays_of) {
  const Head head(node, num_required);
  const ChunkKernels whole(head, head.chunk, node.attrs);
  const int64_t left = head.tokens % head.chunk;
  const ChunkKernels last(head, left == 0 ? head.chunk : left, node.attrs);
  const auto run = [=](const KernelArgs& args) {
    Arrays arrays = arrays_of(args);
    if (head.teacher.top_k > 0) {
      arrays.tokens.teacher_ids = input_of<int32_t>(args, head.teacher.ids);
      arrays.tokens.teacher_logps = input_of<float>(args, head.teacher.logps);
      arrays.tokens.top_k = static_cast<int>(head.teacher.top_k);
      arrays.tokens.formula = head.teacher.formula;
    }
    for (int64_t first = 0; first < head.tokens; first += head.chunk)
      run_chunk(head, first + head.chunk > head.tokens ? last : whole, first, arrays, args);
  };
  return {.run = run,
          .workspace_bytes = head.logits_bytes() + head.listed_bytes() +
                             std::max(whole.workspace_bytes(), last.workspace_bytes())};
}

Arrays inputs_of(const KernelArgs& args) {
  Arrays arrays{};
  arrays.x = static_cast<const std::byte*>(args.in[HeadIn::x]);
  arrays.weight = args.in[HeadIn::weight];
  arrays.tokens.labels = input_of<int32_t>(args, HeadIn::labels);
  return arrays;
}
Arrays losses_of(const KernelArgs& args) {
  Arrays arrays = inputs_of(args);
  arrays.tokens.losses = output_of<float>(args, 0);
  arrays.tokens.lse = output_of<float>(args, 1);
  return arrays;
}
Arrays gradients_of(const KernelArgs& args) {
  Arrays arrays = inputs_of(args);
  arrays.tokens.known_lse = input_of<float>(args, HeadIn::lse);
  arrays.tokens.dlosses = input_of<float>(args, HeadIn::dlosses);
  arrays.tokens.dloss_stride = 1;
  arrays.dx = output_of<std::byte>(args, 0);
  arrays.dweight = args.out.size() > 1 ? output_of<float>(args, 1) : nullptr;
  return arrays;
}
Arrays both_of(const KernelArgs& args) {
  Arrays arrays = inputs_of(args);
  arrays.tokens.losses = output_of<float>(args, 0);
  arrays.tokens.dlosses = input_of<float>(args, HeadIn::dloss);
  arrays.dx = output_of<std::byte>(args, 1);
  arrays.dweight = args.out.size() > 2 ? output_of<float>(args, 2) : nullptr;
  return arrays;
}

/// Returns the matmuls of a full chunk, for autotuning.
std::vector<ir::StandaloneNode> head_matmuls(const ir::NodeView& node) {
  const Head head(node, node.in.size());
  const ir::Type x{.dtype = head.dtype, .shape = {head.chunk, head.width}};
  return {{.attrs = {{"transpose_b", int64_t{1}}, {"out_dtype", std::string("f32")}},
           .in = {x, node.in_type(HeadIn::weight)},
           .out = {{.dtype = DType::f32, .shape = {head.chunk, head.vocab}}}}};
}
std::vector<ir::StandaloneNode> head_grad_matmuls(const ir::NodeView& node) {
  const Head head(node, node.in.size());
  const ir::Type x{.dtype = head.dtype, .shape = {head.chunk, head.width}};
  const ir::Type dlogits{.dtype = head.dtype, .shape = {head.chunk, head.vocab}};
  const ir::Type& weight = node.in_type(HeadIn::weight);
  std::vector<ir::StandaloneNode> result = head_matmuls(node);
  result.push_back({.attrs = {}, .in = {dlogits, weight}, .out = {x}});
  if (node.attrs.integer_or("frozen", 0) == 0)
    result.push_back({.attrs = {{"transpose_a", int64_t{1}}, {"out_dtype", std::string("f32")}},
                      .in = {dlogits, x},
                      .out = {{.dtype = DType::f32, .shape = weight.shape}}});
  return result;
}

/// Arrays of the listed tokens of one chunk: `ids` and `logps` are outputs; `chosen` and `logits` are in the
/// workspace, in the order of choice.
struct Listed {
  const int32_t* labels;
  int32_t* ids;
  float* logps;
  int32_t* chosen;
  float* logits;
  int k;
};

/// Chooses the k tokens with the largest logits of a row, one after the other. All threads of the block call
/// it.
RT_DEVICE void choose_tokens(float* row, int vocab, float softcap, const Listed& out, int64_t begin) {
  for (int i = 0; i < out.k; ++i) {
    float best = -3.4e38F, best_id = 0;
    for (int v = static_cast<int>(threadIdx.x); v < vocab; v += kBlockThreads) {
      const float logit = row[v] > kListedLogit ? capped(row[v], softcap) : -3.4e38F;
      if (logit > best) {
        best = logit;
        best_id = static_cast<float>(v);
      }
    }
    const float largest = rt::reduce_block(best, rt::Max(), -3.4e38F);
    const float id = -rt::reduce_block(best == largest ? -best_id : -3.4e38F, rt::Max(), -3.4e38F);
    if (threadIdx.x == 0) {
      out.chosen[begin + i] = static_cast<int32_t>(id);
      out.logits[begin + i] = largest;
      row[static_cast<int>(id)] = kListedLogit;
    }
    rt::sync_block();
  }
}

/// Lists the most likely tokens of each row of logits, sorted by id. One block per token.
__global__ void __launch_bounds__(kBlockThreads)
    top_rows(float* logits, int64_t row_stride, int vocab, float softcap, Listed out) {
  float* row = logits + blockIdx.x * row_stride;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * out.k;
  const bool counts = out.labels[blockIdx.x] >= 0;
  const float lse = counts ? softmax_of_logits<1>(row, vocab, softcap).log_sum() : 0.0F;
  if (counts && out.k < vocab) choose_tokens(row, vocab, softcap, out, begin);
  for (int j = static_cast<int>(threadIdx.x); j < out.k; j += kBlockThreads) {
    int rank = 0, id = j;
    if (counts && out.k < vocab) {
      id = out.chosen[begin + j];
      for (int i = 0; i < out.k; ++i) rank += out.chosen[begin + i] < id ? 1 : 0;
      out.logps[begin + rank] = out.logits[begin + j] - lse;
    } else {
      rank = j;
      out.logps[begin + j] = counts ? capped(row[j], softcap) - lse : 0.0F;
    }
    out.ids[begin + rank] = id;
  }
}

ir::Kernel head_top_k_gpu(const NodeView& node) {
  const Head head(node, node.in.size());
  const auto k = node.attrs.integer("k"), vocab = node.attrs.integer("vocab");
  const int64_t listed_bytes = ceil_div(head.chunk * k * 4, 256) * 256;
  const ChunkKernels whole(head, head.chunk, node.attrs);
  const int64_t left = head.tokens % head.chunk;
  const ChunkKernels last(head, left == 0 ? head.chunk : left, node.attrs);
  const auto run = [=](const KernelArgs& args) {
    auto* logits = reinterpret_cast<float*>(args.workspace);
    std::byte* listed = args.workspace + head.logits_bytes();
    for (int64_t first = 0; first < head.tokens; first += head.chunk) {
      const ChunkKernels& kernels = first + head.chunk > head.tokens ? last : whole;
      kernels.logits.launch(*args.stream, {.a = input_of<std::byte>(args, HeadIn::x) +
                                                first * head.width * head.element_bytes(),
                                           .b = args.in[HeadIn::weight],
                                           .c = logits,
                                           .workspace = listed + 2 * listed_bytes});
      rt::launch(top_rows, {kernels.rows, kBlockThreads}, args.stream->handle(), logits, head.vocab,
                 static_cast<int>(vocab), head.softcap,
                 Listed{.labels = input_of<int32_t>(args, HeadIn::labels) + first,
                        .ids = output_of<int32_t>(args, 0) + first * k,
                        .logps = output_of<float>(args, 1) + first * k,
                        .chosen = reinterpret_cast<int32_t*>(listed),
                        .logits = reinterpret_cast<float*>(listed + listed_bytes),
                        .k = static_cast<int>(k)});
    }
  };
  return {.run = run,
          .workspace_bytes = head.logits_bytes() + 2 * listed_bytes +
                             std::max(whole.logits.workspace_bytes(), last.logits.workspace_bytes())};
}

ir::Kernel head_cross_entropy_gpu(const NodeView& node) { return make(node, HeadIn::lse, losses_of); }
ir::Kernel head_cross_entropy_grad_gpu(const NodeView& node) {
  return make(node, HeadIn::dlosses + 1, gradients_of);
}
ir::Kernel head_cross_entropy_train_gpu(const NodeView& node) {
  return make(node, HeadIn::dloss + 1, both_of);
}

const GpuKernels kKernels = {
    {.op = "head_top_k", .one = head_top_k_gpu, .matmuls = head_matmuls},
    {.op = "head_cross_entropy", .one = head_cross_entropy_gpu, .matmuls = head_matmuls},
    {.op = "head_cross_entropy_grad", .one = head_cross_entropy_grad_gpu, .matmuls = head_grad_matmuls},
    {.op = "head_cross_entropy_train", .one = head_cross_entropy_train_gpu, .matmuls = head_grad_matmuls}};

}  // namespace
}  // namespace hearth::ops
