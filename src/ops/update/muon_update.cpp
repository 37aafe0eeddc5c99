// Muon (Jordan et al. 2024): the momentum of a weight matrix is orthogonalized before it is applied. The
// matrix is divided by its Frobenius norm, and kSteps Newton-Schulz steps x <- a x + b (x x^T) x + c (x
// x^T)^2 x move its singular values close to 1. Each step is three matmuls; x is transposed first if that
// makes x x^T smaller.
#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cpu/clones.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/rows.h"
#include "base/threads.h"
#include "ops/update/rules.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

constexpr int kSteps = MuonOptions::kSteps;
constexpr float kA = MuonOptions::kA, kB = MuonOptions::kB, kC = MuonOptions::kC;

MuonOptions options_of(const NodeView& node) {
  return muon_options(node.attrs, node.in_type(kParam).shape[0], node.in_type(kParam).shape[1]);
}

HEARTH_CLONES void move_momentum(const float* grad, float factor, float momentum, float* buffer,
                                 int64_t count) {
  for (int64_t i = 0; i < count; ++i) MuonOptions::move(factor * grad[i], momentum, buffer[i]);
}
HEARTH_CLONES void blend(const float* grad, float factor, float momentum, const float* buffer, float* out,
                         int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = MuonOptions::nesterov_direction(factor * grad[i], momentum, buffer[i]);
}
/// Computes out = of_x * x + of_y * y.
HEARTH_CLONES void combine(const float* x, float of_x, const float* y, float of_y, float* out,
                           int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = of_x * x[i] + of_y * y[i];
}

/// Shape [rows, columns] of a weight, shape [small, wide] of its update direction x, which is transposed if
/// the weight has more rows than columns, and the matmuls of a step.
struct Plan {
  int64_t rows;
  int64_t columns;
  int64_t small;
  int64_t wide;
  cpu::Gemm gram;    ///< x x^T
  cpu::Gemm square;  ///< gram * gram
  cpu::Gemm apply;   ///< polynomial of gram, times x
  int64_t gemm_bytes;

  Plan(const Shape& shape, int num_threads)
      : rows(shape[0]),
        columns(shape[1]),
        small(std::min(rows, columns)),
        wide(std::max(rows, columns)),
        gram({.m = small, .n = small, .k = wide, .transpose_b = true, .num_threads = num_threads}),
        square({.m = small, .n = small, .k = small, .num_threads = num_threads}),
        apply({.m = small, .n = wide, .k = small, .num_threads = num_threads}),
        gemm_bytes(std::max({gram.workspace_bytes(), square.workspace_bytes(), apply.workspace_bytes()})) {}

  /// Returns the number of partial sums of the squares of x, for its norm.
  int num_parts() const { return num_sum_parts(rows * columns, kGrain); }
};

/// Workspace layout; with a null base, only computes `bytes`.
struct Space {
  float *x, *y, *gram, *other;
  double* partial;
  std::byte* gemm;
  int64_t bytes;
  Space(const Plan& plan, std::byte* base) {
    int64_t next = 0;
    const auto take = [&](int64_t size) {
      std::byte* at = base == nullptr ? nullptr : base + next;
      next += cpu::round_up(size, 64);
      return at;
    };
    const int64_t whole = plan.rows * plan.columns * int64_t{sizeof(float)};
    const int64_t square = plan.small * plan.small * int64_t{sizeof(float)};
    x = reinterpret_cast<float*>(take(whole));
    y = reinterpret_cast<float*>(take(whole));
    gram = reinterpret_cast<float*>(take(square));
    other = reinterpret_cast<float*>(take(square));
    partial = reinterpret_cast<double*>(take(plan.num_parts() * int64_t{sizeof(double)}));
    gemm = take(plan.gemm_bytes);
    bytes = next;
  }
};

class Run {
 public:
  Run(const Plan& plan, const MuonOptions& options, const Type& gradient, const KernelArgs& args)
      : plan_(plan), options_(options), gradient_(gradient), args_(args), space_(plan, args.workspace) {}

  void run() {
    make_direction();
    if (plan_.rows > plan_.columns) {
      cpu::transpose(space_.x, plan_.rows, plan_.columns, space_.y, *args_.threads);
      std::swap(space_.x, space_.y);
    }
    normalize();
    for (int step = 0; step < kSteps; ++step) iterate();
    if (plan_.rows > plan_.columns) {
      cpu::transpose(space_.x, plan_.columns, plan_.rows, space_.y, *args_.threads);
      std::swap(space_.x, space_.y);
    }
    const double rate = static_cast<double>(*args_.input<float>(kRate));
    for_runs(count(), *args_.threads, [&](int64_t i, int64_t n) {
      float* param = args_.output<float>(0) + i;
      combine(param, static_cast<float>(1 - rate * options_.weight_decay), space_.x + i,
              static_cast<float>(-rate * options_.ratio), param, n);
    });
  }

 private:
  int64_t count() const { return plan_.rows * plan_.columns; }

  void make_direction() {
    const float factor = *args_.input<float>(kFactor);
    const auto momentum = static_cast<float>(options_.momentum);
    for_gradient_runs(gradient_, args_, [&](const float* grad, int64_t i, int64_t n) {
      float* buffer = args_.output<float>(1) + i;
      move_momentum(grad, factor, momentum, buffer, n);
      if (options_.nesterov) {
        blend(grad, factor, momentum, buffer, space_.x + i, n);
      } else {
        std::copy_n(buffer, n, space_.x + i);
      }
    });
  }

  /// Divides x by its Frobenius norm, which bounds all singular values by 1.
  void normalize() {
    const int num_parts = plan_.num_parts();
    args_.threads->for_parts(num_parts, [&](int part) {
      const Range mine = split_range(count(), num_parts, part);
      double sum = 0;
      for (int64_t i = mine.begin; i < mine.end; ++i)
        sum += static_cast<double>(space_.x[i]) * static_cast<double>(space_.x[i]);
      space_.partial[part] = sum;
    });
    double sum = 0;
    for (int part = 0; part < num_parts; ++part) sum += space_.partial[part];
    const auto inverse = static_cast<float>(1 / std::max(std::sqrt(sum), options_.eps));
    for_runs(count(), *args_.threads,
             [&](int64_t i, int64_t n) { combine(space_.x + i, inverse, space_.x + i, 0, space_.x + i, n); });
  }

  /// Runs one Newton-Schulz step: x <- a x + (b g + c g^2) x with g = x x^T.
  void iterate() {
    ThreadPool& threads = *args_.threads;
    plan_.gram.run(space_.x, space_.x, nullptr, nullptr, space_.gram, space_.gemm, threads);
    plan_.square.run(space_.gram, space_.gram, nullptr, nullptr, space_.other, space_.gemm, threads);
    for_runs(plan_.small * plan_.small, threads, [&](int64_t i, int64_t n) {
      combine(space_.gram + i, kB, space_.other + i, kC, space_.gram + i, n);
    });
    plan_.apply.run(space_.gram, space_.x, nullptr, nullptr, space_.y, space_.gemm, threads);
    for_runs(count(), threads,
             [&](int64_t i, int64_t n) { combine(space_.x + i, kA, space_.y + i, 1, space_.x + i, n); });
  }

  const Plan& plan_;
  const MuonOptions& options_;
  const Type& gradient_;
  const KernelArgs& args_;
  Space space_;
};

Inferred infer(const NodeView& node) {
  const Type& type = node.in_type(kParam);
  return type.shape.rank() == 2 ? infer_with_momentum(node, muon_update)
                                : refuse_type("the weight", "a matrix", type);
}

Kernel cpu(const NodeView& node) {
  const auto plan = std::make_shared<const Plan>(node.in_type(kParam).shape, node.num_threads);
  const auto run = [=, gradient = node.in_type(kGrad), options = options_of(node)](const KernelArgs& args) {
    if (*args.input<float>(kFactor) < 0 || plan->small == 0) return;
    Run(*plan, options, gradient, args).run();
  };
  return {.run = run, .workspace_bytes = Space(*plan, nullptr).bytes};
}

using Doubles = std::vector<double>;

/// Returns the product of a [m, k] and b [k, n] or, if `transposed`, of a and the transpose of b [n, k].
Doubles matmul(const Doubles& a, const Doubles& b, size_t m, size_t k, size_t n, bool transposed) {
  Doubles c(m * n);
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t p = 0; p < k; ++p) c[i * n + j] += a[i * k + p] * b[transposed ? j * k + p : p * n + j];
    }
  }
  return c;
}

/// Reference: runs the Newton-Schulz steps without transposing x, which gives the same result, only more
/// slowly for a tall x.
Doubles orthogonal(Doubles x, size_t rows, size_t columns, double eps) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  for (double& value : x) value /= std::max(std::sqrt(squares), eps);
  for (int step = 0; step < kSteps; ++step) {
    Doubles gram = matmul(x, x, rows, columns, rows, true);
    const Doubles square = matmul(gram, gram, rows, rows, rows, false);
    for (size_t i = 0; i < gram.size(); ++i)
      gram[i] = static_cast<double>(kB) * gram[i] + static_cast<double>(kC) * square[i];
    const Doubles moved = matmul(gram, x, rows, rows, columns, false);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(kA) * x[i] + moved[i];
  }
  return x;
}

void reference(const ReferenceArgs& args) {
  const MuonOptions options = options_of(args.node);
  const double rate = args.in[kRate][0], factor = args.in[kFactor][0];
  const Shape& shape = args.node.in_type(kParam).shape;
  Doubles direction(args.in[kParam].size());
  for (size_t i = 0; i < direction.size(); ++i) {
    const double g = factor * args.in[kGrad][i];
    const double buffer = args.in[kFirstState][i] + (1 - options.momentum) * (g - args.in[kFirstState][i]);
    args.out[1][i] = buffer;
    direction[i] = options.nesterov ? g + options.momentum * (buffer - g) : buffer;
  }
  direction =
      orthogonal(direction, static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1]), options.eps);
  for (size_t i = 0; i < direction.size(); ++i) {
    args.out[0][i] =
        (1 - rate * options.weight_decay) * args.in[kParam][i] - rate * options.ratio * direction[i];
  }
}

Cost cost(const NodeView& node) {
  const auto rows = static_cast<double>(node.in_type(kParam).shape[0]);
  const auto columns = static_cast<double>(node.in_type(kParam).shape[1]);
  const double small = std::min(rows, columns);
  return {.flops = kSteps * 2 * small * small * (2 * std::max(rows, columns) + small),
          .bytes = bytes_moved(node)};
}

std::vector<Sample> samples() {
  const auto sample = [](const Shape& shape, DType dtype, int64_t nesterov, const char* adjust) {
    return Sample{.in = {normal(shape), normal(shape, dtype), positive({}), positive({}), normal(shape)},
                  .attrs = {{"momentum", 0.95},
                            {"nesterov", nesterov},
                            {"weight_decay", 0.1},
                            {"adjust", std::string(adjust)}}};
  };
  return {sample({3, 7}, DType::f32, 1, "original"), sample({101, 70}, DType::f32, 0, "match_rms_adamw"),
          sample({9, 40}, DType::bf16, 1, "original")};
}

}  // namespace

MuonOptions muon_options(const Attrs& attrs, int64_t rows, int64_t columns) {
  const auto height = static_cast<double>(rows), width = static_cast<double>(columns);
  const bool match = attrs.text_or("adjust", "original") == "match_rms_adamw";
  return {
      .momentum = attrs.real("momentum"),
      .nesterov = attrs.integer_or("nesterov", 1) != 0,
      .weight_decay = attrs.real("weight_decay"),
      .eps = attrs.real_or("eps", 1e-7),
      .ratio = match ? 0.2 * std::sqrt(std::max(height, width)) : std::sqrt(std::max(1.0, height / width))};
}

const OpDef muon_update{.name = "muon_update",
                        .doc =
                            "muon_update(param, grad, lr, factor, momentum): torch.optim.Muon with its "
                            "iteration in f32, in place",
                        .inputs = {"param", "grad", "lr", "factor", "momentum"},
                        .infer = infer,
                        .no_vjp_because = kUpdateHasNoGradient,
                        .cpu = cpu,
                        .gpu = true,
                        .reference = reference,
                        .cost = cost,
                        .precision = ir::Precision::full,
                        .writes = {kParam, kFirstState},
                        .samples = samples};

}  // namespace hearth::ops
