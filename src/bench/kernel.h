#pragma once

#include <memory>

#include "bench/models.h"
#include "bench/workload.h"

namespace hearth::bench {

/// Opens the workload of a kernel case: one kernel on random numbers, with the shapes of a decoder's layers.
/// matmul_q, matmul_kv, matmul_up, matmul_down and matmul_head multiply a layer's input by its weights;
/// matmul_up_dx and matmul_up_dw compute the gradients of matmul_up for its input and its weights; attention
/// and attention_grad are the attention of a layer and its gradient. UserError if machine.device is no GPU.
std::unique_ptr<Workload> open_kernel(const BenchCase& bench, const BenchMachine& machine);

}  // namespace hearth::bench
