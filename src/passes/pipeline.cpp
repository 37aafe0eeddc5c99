#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/text.h"
#include "ir/verify.h"
#include "passes/autocast.h"
#include "passes/backward.h"
#include "passes/fuse/fuse.h"
#include "passes/fuse/head.h"
#include "passes/group_updates.h"
#include "passes/memory/schedule.h"
#include "passes/parallel/all_reduce.h"
#include "passes/round_operands.h"

namespace hearth::passes {
namespace {

/// Runs a pass before backward() that removes dead nodes, but keeps loss_weight, which only backward() will
/// read.
template <typename GraphPass>
void keeping_loss_weight(TrainGraph& train, GraphPass pass) {
  if (train.loss_weight == ir::kNone) return pass(train.graph);
  train.graph.outputs.push_back(train.loss_weight);
  pass(train.graph);
  train.loss_weight = train.graph.outputs.back();
  train.graph.outputs.pop_back();
}

/// Runs a pass after backward() that removes dead nodes, but keeps the values in `shared`, which other
/// workers may need.
template <typename GraphPass>
void keeping_shared(TrainGraph& train, GraphPass pass) {
  std::vector<ir::ValueId>& outputs = train.graph.outputs;
  const size_t num_outputs = outputs.size();
  for (const Shared& shared : train.shared) outputs.push_back(shared.value);
  pass(train.graph);
  for (size_t i = 0; i < train.shared.size(); ++i) train.shared[i].value = outputs[num_outputs + i];
  outputs.resize(num_outputs);
}

constexpr Pass kPasses[] = {
    {.name = "autocast",
     .doc = "mixed precision: matmuls and convolutions in bf16 or f16, losses in f32",
     .run = [](TrainGraph& train, PassContext& context) { autocast(train, context.precision); }},
    {.name = "fuse_epilogues",
     .doc = "fuses bias, residual, relu and casts into the op before them",
     .run = [](TrainGraph& train, PassContext&) { keeping_loss_weight(train, fuse_epilogues); }},
    {.name = "fuse_adapters",
     .doc = "multiplies by the low-rank matrices of adapters with one input together, on a GPU",
     .run =
         [](TrainGraph& train, PassContext& context) {
           if (context.device.is_gpu) keeping_loss_weight(train, fuse_adapters);
         }},
    {.name = "fuse_conv_pool",
     .doc = "fuses convolution, relu and 2x2 max-pool over an image",
     .run = [](TrainGraph& train, PassContext&) { keeping_loss_weight(train, fuse_conv_pool); }},
    {.name = "fuse_norm",
     .doc = "fuses batch norm into the convolution before it; in training on a GPU its statistics only",
     .run =
         [](TrainGraph& train, PassContext& context) {
           const NormFusion how{.moments = context.device.is_gpu,
                                .gradients = context.consume_gradients != nullptr};
           keeping_loss_weight(train, [&](ir::Graph& graph) { fuse_norm(graph, how); });
         }},
    {.name = "backward",
     .doc = "appends the gradients of all parameters and their consumers (optimizer or accumulation)",
     .required = true,
     .run =
         [](TrainGraph& train, PassContext& context) {
           if (!context.consume_gradients) return;
           backward(train);
           context.consume_gradients(train);
           keeping_shared(train, [](ir::Graph& graph) { graph.remove_dead_nodes(); });
         }},
    {.name = "round_operands",
     .doc = "rounds the operands of matmuls in 8-bit precision",
     .required = true,
     .run = [](TrainGraph& train, PassContext&) { round_operands(train.graph); }},
    {.name = "compress",
     .doc = "compresses gradients before they are all-reduced, with error feedback",
     .required = true,
     .run = [](TrainGraph& train, PassContext& context) { compress(train, context.compress); }},
    {.name = "fuse_sums",
     .doc = "adds gradients in the op that computes one of them, and shares casts",
     .run =
         [](TrainGraph& train, PassContext& context) {
           keeping_shared(train, [&](ir::Graph& graph) {
             fuse_sums(graph, context.device.is_gpu);
             if (context.device.is_gpu && !context.cuts_stages) fuse_accumulate(graph);
             share_casts(graph, !context.cuts_stages);
           });
         }},
    {.name = "fuse_masks",
     .doc = "stores a bit per element for the gradient of batch norm + relu, on a GPU",
     .run =
         [](TrainGraph& train, PassContext& context) {
           const cost::Device& gpu = context.device;
           if (gpu.is_gpu)
             fuse_masks(train.graph,
                        {.in_conv = !context.cuts_stages, .in_matmul = gpu.vendor == cost::Vendor::amd});
         }},
    {.name = "fuse_head",
     .doc = "fuses a language model's losses with their gradient; sizes their chunks for the GPU",
     .run =
         [](TrainGraph& train, PassContext& context) {
           keeping_shared(train, fuse_head);
           if (context.device.is_gpu) enlarge_head_chunks(train.graph, context.device.memory_bytes);
         }},
    {.name = "fuse_elementwise",
     .doc = "fuses chains of elementwise ops into one loop",
     .run = [](TrainGraph& train, PassContext&) { keeping_shared(train, fuse_elementwise); }},
    {.name = "schedule",
     .doc = "reorders nodes to lower the memory peak",
     .run =
         [](TrainGraph& train, PassContext& context) {
           if (context.shard.owners == nullptr) schedule(train.graph, context.workspace_of);
         }},
    {.name = "all_reduce",
     .doc = "inserts all-reduces between workers, overlapped with the backward pass",
     .required = true,
     .stage = Stage::exchange,
     .run = [](TrainGraph& train, PassContext& context) { all_reduce(train, context.all_reduce); }},
    {.name = "shard_weights",
     .doc = "shards weights (FSDP): broadcasts each weight before the pass that reads it",
     .required = true,
     .stage = Stage::exchange,
     .run = [](TrainGraph& train, PassContext& context) { shard_weights(train, context.shard); }},
    {.name = "group_updates",
     .doc = "groups optimizer updates, so that a GPU does them in one launch",
     .stage = Stage::exchange,
     .run = [](TrainGraph& train, PassContext&) { group_updates(train.graph); }},
    {.name = "encode_saved",
     .doc = "stores saved activations in E4M3 between the forward and the backward pass",
     .stage = Stage::place,
     .run =
         [](TrainGraph& train, PassContext& context) {
           if (context.offload.saved == SavedActivations::fp8)
             context.encoded = encode_saved(train, context.device, context.offload.min_encoded_bytes);
         }},
    {.name = "offload",
     .doc = "offloads weights and states to host memory; copies them to the device when needed",
     .stage = Stage::place,
     .run = [](TrainGraph& train, PassContext& context) { offload(train.graph, context.offload); }},
    {.name = "recompute",
     .doc = "recomputes or offloads activations until the peak is within the memory budget",
     .stage = Stage::place,
     .run =
         [](TrainGraph& train, PassContext& context) {
           context.recompute = recompute(train.graph, context.budget_bytes, context.workspace_of,
                                         context.device, context.offload);
         }},
    {.name = "prefetch",
     .doc = "starts copies from the host earlier, so that they overlap with computing",
     .stage = Stage::place,
     .run =
         [](TrainGraph& train, PassContext& context) {
           prefetch(train.graph, context.budget_bytes, context.workspace_of, context.device);
         }},
    {.name = "group_casts",
     .doc =
         "groups casts of weights and copies of adapters' gradients, so that a GPU does them in one launch",
     .stage = Stage::place,
     .run =
         [](TrainGraph& train, PassContext& context) {
           if (!context.device.is_gpu) return;
           group_casts(train.graph, context.workspace_of);
           group_unstacking(train.graph, context.workspace_of);
         }},
};

void check_names(const std::vector<std::string>& off) {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) names.emplace_back(pass.name);
  for (const std::string& name : off) {
    const auto found = std::ranges::find_if(kPasses, [&](const Pass& pass) { return pass.name == name; });
    if (found == std::end(kPasses)) user_error("there is no pass '{}'{}", name, did_you_mean(name, names));
    if (found->required) user_error("pass '{}' cannot be switched off", name);
  }
}

}  // namespace

std::span<const Pass> pass_list() { return kPasses; }

void run_passes(TrainGraph& train, PassContext& context, Stage stage) {
  check_names(context.off);
  for (const Pass& pass : kPasses) {
    if (pass.stage != stage) continue;
    if (std::find(context.off.begin(), context.off.end(), pass.name) != context.off.end()) continue;
    const auto start = std::chrono::steady_clock::now();
    pass.run(train, context);
    ir::verify(train.graph, pass.name);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (context.after_pass) context.after_pass(pass.name, train.graph, seconds.count());
  }
}

}  // namespace hearth::passes
