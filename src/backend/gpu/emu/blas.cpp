#include "backend/gpu/emu/blas.h"

#include <cstdlib>
#include <cstring>

#include "backend/gpu/device.h"

namespace hearth::emu {
namespace {

using gpu::BlasArrays;
using gpu::BlasMatmul;
using Library = GpuSettings::Library;

constexpr int64_t kWorkspaceBytes = 4096;

float element(const void* array, DType dtype, int64_t leading, bool transposed, int64_t row, int64_t column) {
  const int64_t at = transposed ? column + row * leading : row + column * leading;
  return static_cast<float>(load_element(dtype, array, at));
}

void compute(const BlasMatmul& p, const BlasArrays& arrays, int64_t num_terms) {
  std::memset(arrays.workspace, 0xFF, kWorkspaceBytes);
  for (int64_t j = 0; j < p.n; ++j) {
    for (int64_t i = 0; i < p.m; ++i) {
      float sum = 0;
      for (int64_t term = 0; term < num_terms; ++term)
        sum += element(arrays.a, p.in, p.leading_a, p.transpose_a, i, term) *
               element(arrays.b, p.in, p.leading_b, p.transpose_b, term, j);
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

}  // namespace

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
  stream.launch({.launched = {__FILE__, __LINE__}}, [=] { compute(matmul, arrays, num_terms); });
}

}  // namespace hearth::emu

namespace hearth::gpu {

std::string blas_library() {
  const bool offered = emu::gpus().front().library != emu::GpuSettings::Library::none;
  return offered ? "emulated library 1" : "";
}
int64_t blas_workspace_bytes() { return emu::kWorkspaceBytes; }

}  // namespace hearth::gpu
