#include "race/planted.h"

#include "backend/gpu/rt.h"

namespace hearth::planted {
namespace {

__global__ void neighbors_kernel(float* out, bool wrong) {
  RT_SHARED(row, float[64]);
  row[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (!wrong) rt::sync_block();
  out[threadIdx.x] = row[(threadIdx.x + 1) % 64];
}

__global__ void rounds_kernel(float* out, bool wrong) {
  RT_SHARED(value, float);
  float sum = 0;
  for (unsigned i = 0; i < 4; ++i) {
    if (threadIdx.x == i) value = static_cast<float>(i);
    rt::sync_block();
    sum += value;
    if (!wrong) rt::sync_block();
  }
  out[threadIdx.x] = sum;
}

__global__ void lanes_kernel(float* out, bool wrong) {
  RT_SHARED(row, float[64]);
  row[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (!wrong) rt::sync_warp();
  if (wrong) static_cast<void>(rt::shuffle(1, 0));
  out[threadIdx.x] = row[threadIdx.x ^ 1];
}

__global__ void blocks_kernel(float* out, bool wrong) {
  if (threadIdx.x == 0) out[wrong ? 0 : blockIdx.x] = 1;
}

__global__ void unset_kernel(float* out, bool wrong) {
  RT_SHARED(row, float[64]);
  if (!wrong || threadIdx.x < 32) row[threadIdx.x] = 1;
  rt::sync_block();
  out[threadIdx.x] = row[63 - threadIdx.x];
}

__global__ void global_bounds_kernel(float* out, bool wrong) { out[threadIdx.x + (wrong ? 1 : 0)] = 1; }

__global__ void shared_bounds_kernel(float* out, bool wrong) {
  RT_SHARED(row, float[64]);
  float* place = row;
  row[threadIdx.x] = 1;
  rt::sync_block();
  out[threadIdx.x] = place[threadIdx.x + (wrong ? 1 : 0)];
}

__global__ void wide_kernel(float* out, bool wrong) {
  RT_SHARED(row, float[64]);
  row[threadIdx.x] = 1;
  if (!wrong) rt::sync_block();
  if (threadIdx.x < 16) rt::store(out + 4 * threadIdx.x, rt::load<float, 4>(row + 4 * threadIdx.x));
}

}  // namespace

void neighbors(void* stream, float* out, bool wrong) {
  rt::launch(neighbors_kernel, {1, 64}, stream, out, wrong);
}
void rounds(void* stream, float* out, bool wrong) { rt::launch(rounds_kernel, {1, 64}, stream, out, wrong); }
void lanes(void* stream, float* out, bool wrong) { rt::launch(lanes_kernel, {1, 64}, stream, out, wrong); }
void blocks(void* stream, float* out, bool wrong) { rt::launch(blocks_kernel, {2, 64}, stream, out, wrong); }
void unset(void* stream, float* out, bool wrong) { rt::launch(unset_kernel, {1, 64}, stream, out, wrong); }
void global_bounds(void* stream, float* out, bool wrong) {
  rt::launch(global_bounds_kernel, {1, 64}, stream, out, wrong);
}
void shared_bounds(void* stream, float* out, bool wrong) {
  rt::launch(shared_bounds_kernel, {1, 64}, stream, out, wrong);
}
void wide(void* stream, float* out, bool wrong) { rt::launch(wide_kernel, {1, 64}, stream, out, wrong); }

}  // namespace hearth::planted
