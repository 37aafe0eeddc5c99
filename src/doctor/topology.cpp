#include "doctor/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "base/isolated.h"
#include "base/text.h"
#include "bench/case.h"
#include "distributed/shm/shm.h"
#include "doctor/gpu_trials.h"
#include "exec/device/gpu_choice.h"
#include "planner/scaling_model.h"

namespace hearth::doctor {
namespace {

using system::Machine;
using system::PciGpu;

constexpr double kMeasureSeconds = 120;
/// Fractions of linear speedup: at kGood or more, training on all GPUs is recommended; at kPoor or more,
/// under conditions.
constexpr double kGood = 0.8, kPoor = 0.6;

/// Returns the device folders of the PCI bridges between the GPU and the root, the one closest to the GPU
/// first: "sys/devices/pci0000:00/0000:00:01.1", ...
std::vector<std::string> bridges_of(const PciGpu& gpu) {
  std::vector<std::string> all;
  for (fs::path at = fs::path(gpu.folder).parent_path();
       at.filename().string().find(':') != std::string::npos; at = at.parent_path()) {
    // The root complex ("pci0000:00") is not a bridge.
    if (at.filename().string().starts_with("pci")) break;
    all.push_back(at.string());
  }
  return all;
}

/// Returns the address of the first bridge above the GPU that another GPU is behind too; empty if there is
/// none.
std::string shared_bridge(const PciGpu& gpu, const std::vector<Topology::Gpu>& all) {
  for (const std::string& bridge : bridges_of(gpu)) {
    for (const Topology::Gpu& other : all)
      if (other.gpu != &gpu && other.gpu->folder.starts_with(bridge + "/"))
        return fs::path(bridge).filename().string();
  }
  return "";
}

double slower_copy(const gpu::DeviceInfo& gpu) {
  const CopyRates rates = measure_copies(gpu);
  return std::min(rates.to_gpu, rates.to_host);
}

/// Measures the copy rate of each GPU in bytes/s, first alone and then while all GPUs copy.
nlohmann::json measure(const std::string& device, int size) {
  std::vector<double> alone(static_cast<size_t>(size)), together(static_cast<size_t>(size));
  distributed::run_ranks(size, [&](distributed::ProcessGroup& group) {
    const gpu::DeviceInfo gpu = exec::find_gpu(device, group.rank());
    double own = 0;
    for (int i = 0; i < size; ++i) {
      group.barrier();
      if (group.rank() == i) own = slower_copy(gpu);
    }
    group.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(alone)));
    group.barrier();
    own = slower_copy(gpu);
    group.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(together)));
  });
  return {{"alone", alone}, {"together", together}};
}

std::string rate(double bytes_per_second) { return fmt::format("{:.1f} GB/s", bytes_per_second * 1e-9); }

std::string gpu_text(size_t number, const Topology::Gpu& one, bool several_nodes) {
  const PciGpu& gpu = *one.gpu;
  std::string text = fmt::format("{}  {}  {}", number, gpu.pci_address, gpu.title());
  if (!gpu.architecture.empty()) text += ", " + gpu.architecture;
  if (gpu.memory_bytes > 0) text += ", " + human_bytes(gpu.memory_bytes);
  if (several_nodes && gpu.numa_node.value_or(-1) >= 0) text += fmt::format(", NUMA node {}", *gpu.numa_node);
  text += '\n';
  for (const system::PciLink& link : gpu.links)
    text += fmt::format("     link of {}: x{} at {:g} GT/s\n", link.address, link.width, link.best_speed());
  if (one.link_bytes_per_second > 0)
    text += fmt::format("     to the processor: {} at best\n", rate(one.link_bytes_per_second));
  if (one.alone_bytes_per_second > 0)
    text += fmt::format("     measured: {} alone, {} while all copy\n", rate(one.alone_bytes_per_second),
                        rate(one.together_bytes_per_second));
  if (!one.shares.empty()) text += fmt::format("     shares the bridge {} with another GPU\n", one.shares);
  return text;
}

std::string advice(const Topology& topology, const std::vector<SharedTraining>& trainings) {
  const size_t size = topology.gpus.size();
  std::string text = fmt::format(
      "\ndevices={} shares each update; GPUs exchange through host memory at {}. Predicted speedup:\n", size,
      rate(topology.common_bytes_per_second()));
  double worst = static_cast<double>(size);
  for (const SharedTraining& training : trainings) {
    text += fmt::format("  {:<24} {:.2f} times one GPU\n", training.name, training.speedup);
    worst = std::min(worst, training.speedup);
  }
  const double share = worst / static_cast<double>(size);
  if (share >= kGood) {
    text += "  -> share updates (parallel=data, which is the default)\n";
  } else if (share >= kPoor) {
    text += "  -> share updates, with a larger train.accumulate for models whose gradients are large\n";
  } else {
    text +=
        "  -> for large models parallel=pipeline sends less, and exchange.local_steps exchanges less often; "
        "LoRA and images share updates\n";
  }
  return text +
         fmt::format("hearth plan RECIPE devices={} --link {:.1f} compares all strategies for a recipe\n",
                     size, topology.common_bytes_per_second() * 1e-9);
}

}  // namespace

double Topology::common_bytes_per_second() const {
  double min_rate = 0;
  for (const Gpu& one : gpus) {
    double own = one.together_bytes_per_second;
    if (own == 0) own = one.shares.empty() ? one.link_bytes_per_second : one.link_bytes_per_second / 2;
    if (own > 0 && (min_rate == 0 || own < min_rate)) min_rate = own;
  }
  return min_rate;
}

Topology topology_of(const Machine& machine) {
  Topology topology;
  for (const PciGpu& gpu : machine.gpus) {
    if (gpu.integrated || gpu.vanished) continue;
    const system::PciLink* link = gpu.slowest_link();
    topology.gpus.push_back(
        {.gpu = &gpu, .link_bytes_per_second = link == nullptr ? 0 : link->best_bytes_per_second()});
  }
  for (Topology::Gpu& one : topology.gpus) one.shares = shared_bridge(*one.gpu, topology.gpus);
  return topology;
}

std::string measure_topology(Topology& topology, const std::string& device) {
  const auto size = static_cast<int>(topology.gpus.size());
  IsolatedProcess process([&](std::string_view) -> std::string {
    try {
      return measure(device, size).dump();
    } catch (const std::exception& error) {
      return nlohmann::json{{"error", error.what()}}.dump();
    }
  });
  const std::optional<std::string> answer = process.ask("", kMeasureSeconds);
  if (!answer) return "a GPU gave no answer while copies were measured; run hearth doctor --deep to find it";
  const nlohmann::json found = nlohmann::json::parse(*answer);
  if (found.contains("error")) return found.at("error").get<std::string>();
  for (size_t i = 0; i < topology.gpus.size(); ++i) {
    topology.gpus[i].alone_bytes_per_second = found.at("alone").at(i).get<double>();
    topology.gpus[i].together_bytes_per_second = found.at("together").at(i).get<double>();
  }
  return "";
}

std::vector<SharedTraining> model_sharing(const Topology& topology) {
  constexpr std::array<std::pair<const char*, const char*>, 3> kCases = {
      {{"resnet50-b128-bf16", "ResNet-50"},
       {"llama1b_lora-b4-bf16", "Llama 1B, LoRA"},
       {"llama1b-b4-bf16", "Llama 1B, all weights"}}};
  std::vector<SharedTraining> found;
  if (topology.gpus.size() < 2 || topology.common_bytes_per_second() == 0) return found;
  // Driver names of GPUs begin with the vendor.
  const PciGpu& first = *topology.gpus[0].gpu;
  const cost::Device& gpu =
      cost::nearest_gpu(first.vendor == PciGpu::Vendor::nvidia ? "NVIDIA" : "AMD " + first.name);
  const planner::Links links{.gpu = topology.common_bytes_per_second()};
  for (const auto& [name, words] : kCases) {
    engine::EngineOptions options = bench::engine_options(bench::find_bench_case(name), {});
    const planner::ScalingModel one = planner::model_scaling(options, gpu, links);
    bench::set_data_parallel(options, static_cast<int>(topology.gpus.size()));
    const planner::ScalingModel all = planner::model_scaling(options, gpu, links);
    found.push_back({.name = words, .speedup = all.samples_per_second() / one.samples_per_second()});
  }
  return found;
}

std::string to_text(const Machine& machine, const Topology& topology) {
  if (topology.gpus.empty()) return "there is no GPU with memory of its own\n";
  std::string text =
      fmt::format("{}, {} NUMA node{}\n", machine.processor.empty() ? "processor" : machine.processor,
                  std::max(1, machine.num_numa_nodes), machine.num_numa_nodes > 1 ? "s" : "");
  for (size_t i = 0; i < topology.gpus.size(); ++i)
    text += gpu_text(i, topology.gpus[i], machine.num_numa_nodes > 1);
  const std::vector<SharedTraining> trainings = model_sharing(topology);
  return printable(trainings.empty() ? text : text + advice(topology, trainings));
}

std::string to_json(const Topology& topology) {
  nlohmann::ordered_json json = {{"gpus", nlohmann::ordered_json::array()},
                                 {"shared", nlohmann::ordered_json::array()}};
  for (const Topology::Gpu& one : topology.gpus) {
    json["gpus"].push_back({{"address", one.gpu->pci_address},
                            {"name", one.gpu->name},
                            {"link_bytes_per_second", one.link_bytes_per_second},
                            {"alone_bytes_per_second", one.alone_bytes_per_second},
                            {"together_bytes_per_second", one.together_bytes_per_second},
                            {"shares", one.shares},
                            {"numa_node", one.gpu->numa_node.value_or(-1)}});
  }
  for (const SharedTraining& training : model_sharing(topology))
    json["shared"].push_back({{"name", training.name}, {"speedup", training.speedup}});
  return json.dump(1) + "\n";
}

}  // namespace hearth::doctor
