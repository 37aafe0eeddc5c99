#include "backend/gpu/emu/blas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backend/gpu/device.h"

namespace hearth::emu {
namespace {

using gpu::BlasAlgorithm;
using gpu::BlasArrays;
using gpu::BlasMatmul;
using Library = GpuSettings::Library;

constexpr int64_t kWorkspaceBytes = 4096;

float element(const void* array, DType dtype, int64_t leading, bool transposed, int64_t row, int64_t column) {
  const int64_t at = transposed ? column + row * leading : row + column * leading;
  return static_cast<float>(load_element(dtype, array, at));
}

/// Computes the matmul with only the first `num_terms` of its k terms, adding them from term `first` on and
/// then from term 0.
void compute(const BlasMatmul& p, const BlasArrays& arrays, int64_t num_terms, int64_t first) {
  std::memset(arrays.workspace, 0xFF, kWorkspaceBytes);
  for (int64_t j = 0; j < p.n; ++j) {
    for (int64_t i = 0; i < p.m; ++i) {
      float sum = 0;
      for (int64_t i_term = 0; i_term < num_terms; ++i_term) {
        const int64_t term = (first + i_term) % num_terms;
        sum += element(arrays.a, p.in, p.leading_a, p.transpose_a, i, term) *
               element(arrays.b, p.in, p.leading_b, p.transpose_b, term, j);
      }
      if (arrays.c != nullptr) sum += element(arrays.c, p.out, p.leading_c, false, i, j);
      store_element(p.out, arrays.d, i + j * p.leading_c, sum);
    }
  }
}

/// True if leading dimensions and dtypes are ones that the vendors' libraries accept.
bool is_sound(const BlasMatmul& p) {
  return p.leading_a >= (p.transpose_a ? p.k : p.m) && p.leading_b >= (p.transpose_b ? p.n : p.k) &&
         p.leading_c >= p.m && gpu::blas_takes(p.in, p.out);
}

/// Returns the index of the matmul's algorithm; 0 if it has none or one that is not valid.
int64_t index_of(const Gpu& gpu, const BlasMatmul& matmul) {
  const std::vector<BlasAlgorithm> all = algorithms(gpu);
  const auto found = matmul.algorithm ? std::ranges::find(all, *matmul.algorithm) : all.end();
  return found == all.end() ? 0 : found - all.begin();
}

}  // namespace

std::vector<BlasAlgorithm> algorithms(const Gpu& gpu) {
  std::vector<BlasAlgorithm> all;
  for (uint64_t id = 1; id <= gpu.settings.algorithm_threads.size(); ++id)
    all.push_back({{id, static_cast<uint64_t>(gpu.settings.library_version)}});
  return all;
}

std::string algorithm_fault(const Gpu& gpu, const BlasMatmul& matmul) {
  const std::vector<BlasAlgorithm> all = algorithms(gpu);
  return std::ranges::find(all, matmul.algorithm) == all.end() ? "the library has no such algorithm" : "";
}

void multiply(Stream& stream, const BlasMatmul& matmul, const BlasArrays& arrays) {
  Gpu& gpu = stream.gpu();
  const Library library = gpu.settings.library;
  const auto refuse = [](const char* what) { throw gpu::DeviceError(gpu::DeviceError::Kind::fault, what); };
  if (library == Library::none) refuse("the GPU has no BLAS library");
  if (library == Library::fatal) std::abort();
  if (library == Library::failing) refuse("the library is configured to fail");
  if (!is_sound(matmul)) refuse("the library does not support this matmul");
  if (gpu.matmuls.insert(matmul).second && stream.records())
    refuse("the library cannot be set up within a recording");
  const int64_t num_terms = matmul.k - (library == Library::wrong ? 1 : 0);
  const int64_t index = index_of(gpu, matmul);
  stream.launch({.launched = {__FILE__, __LINE__}}, [=] { compute(matmul, arrays, num_terms, index); });
  if (const auto& threads = gpu.settings.algorithm_threads; !threads.empty())
    stream.enqueue([&gpu, more = threads[static_cast<size_t>(index)] - 1] { gpu.num_threads += more; });
}

}  // namespace hearth::emu

namespace hearth::gpu {

std::string blas_library() {
  const bool offered = emu::gpus().front().library != emu::GpuSettings::Library::none;
  return offered ? fmt::format("emulated library {}", emu::gpus().front().library_version) : "";
}
int64_t blas_workspace_bytes() { return emu::kWorkspaceBytes; }

}  // namespace hearth::gpu
