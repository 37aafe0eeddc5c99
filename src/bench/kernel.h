#pragma once

#include <memory>

#include "bench/models.h"
#include "bench/workload.h"

namespace hearth::bench {

/// Opens a kernel on random numbers and the shapes of a decoder's layers: matmul_q, matmul_kv, matmul_up,
/// matmul_down and matmul_head, the matmuls of a layer's input with its weights; matmul_up_dx and
/// matmul_up_dw, the gradients of one; attention and attention_grad. UserError if machine.device is no GPU.
std::unique_ptr<Workload> open_kernel(const BenchCase& bench, const BenchMachine& machine);

}  // namespace hearth::bench
