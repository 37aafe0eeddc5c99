// The GPU is opened only in a forked process, which answers one request at a time. If it hangs, it is killed;
// if it dies, the finding names the request. During the test under steady load, this process reads the
// sensors.
#include "doctor/deep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/isolated.h"
#include "base/process.h"
#include "base/text.h"
#include "base/threads.h"
#include "bench/case.h"
#include "bench/kernel.h"
#include "cost/device.h"
#include "doctor/gpu_trials.h"
#include "engine/gpu_options.h"
#include "exec/device/gpu_choice.h"
#include "system/sampler.h"

namespace hearth::doctor {
namespace {

using Json = nlohmann::json;

constexpr double kOpenSeconds = 60;     // until the driver lists its GPUs
constexpr double kKernelSeconds = 900;  // for all kernels
constexpr double kRateSeconds = 120;
/// Fractions of the predicted rate (link, computing) and of the initial rate below which a warning is
/// reported.
constexpr double kLowLink = 0.6, kLowRate = 0.5, kSlower = 0.9;
constexpr const char* kMatmul = "matmul_up-b4-bf16";

// ------------------------------------------------------------------------------------- in the other process

std::unique_ptr<bench::Workload> open_matmul(const std::string& device, DType precision) {
  bench::BenchCase matmul = bench::find_bench_case(kMatmul);
  matmul.precision = precision;
  if (engine::is_emulated(device)) matmul = bench::tiny_case(matmul);
  return bench::open_kernel(matmul, {.num_threads = num_available_cpus(), .device = device});
}

double matmul_rate(const std::string& device, DType precision) {
  const std::unique_ptr<bench::Workload> matmul = open_matmul(device, precision);
  double best = matmul->run(0);
  for (int i = 1; i < 5; ++i) best = std::min(best, matmul->run(i));
  return matmul->flops() / best;
}

/// Runs matmuls for `seconds` and returns the rate of each second in FLOP/s.
std::vector<double> load(const std::string& device, double seconds) {
  const std::unique_ptr<bench::Workload> matmul = open_matmul(device, DType::bf16);
  std::vector<double> rates;
  const double start = process_seconds();
  while (process_seconds() - start < seconds) {
    const double begin = process_seconds();
    double busy = 0;
    int count = 0;
    for (; process_seconds() - begin < std::min(1.0, seconds); ++count) busy += matmul->run(count);
    rates.push_back(matmul->flops() * count / busy);
  }
  return rates;
}

Json list(const std::string& device) {
  Json gpus = Json::array();
  for (const gpu::DeviceInfo& gpu : exec::list_gpus(device))
    gpus.push_back({{"name", gpu.name}, {"address", gpu.pci_address}});
  return gpus;
}

Json answer(const std::string& what, const std::string& device, double number) {
  if (what == "list") return list(device);
  const gpu::DeviceInfo gpu = exec::find_gpu(device);
  if (what == "kernels") {
    const KernelTestResult found = run_kernel_tests(gpu, static_cast<int>(number));
    return {{"tried", found.num_tested}, {"failures", found.failures}};
  }
  if (what == "copies") {
    const CopyRates found = measure_copies(gpu);
    return {{"to_gpu", found.to_gpu}, {"to_host", found.to_host}};
  }
  if (what == "fill") return measure_fill(gpu);
  if (what == "bf16") return matmul_rate(device, DType::bf16);
  if (what == "f32") return matmul_rate(device, DType::f32);
  return load(device, number);
}

/// Runs the test "TEST DEVICE NUMBER NUMBER" and returns its result as JSON, or {"error": message}.
std::string serve(std::string_view request) {
  std::istringstream words{std::string(request)};
  std::string what, device;
  double number = 0, other = 0;
  words >> what >> device >> number >> other;
  try {
    if (what != "memory") return answer(what, device, number).dump();
    const MemoryTestResult found =
        run_memory_test(exec::find_gpu(device), static_cast<int64_t>(other), number);
    return Json{{"bytes", found.num_bytes},
                {"patterns", found.num_patterns},
                {"wrong", found.num_wrong_words},
                {"first", found.first_wrong}}
        .dump();
  } catch (const std::exception& error) {
    return Json{{"error", error.what()}}.dump();
  }
}

// ----------------------------------------------------------------------------------------- in this process

class DeepTester {
 public:
  DeepTester(const system::Machine& machine, const DeepOptions& options,
             const std::function<void(const std::string&)>& say)
      : machine_(machine), options_(options), say_(say), process_(serve) {}

  DeepResult run() {
    // No driver is queried if the PCI bus has no GPU.
    if (machine_.gpus.empty() && options_.device == "gpu") {
      add(Level::note, "no-gpu", "there is no GPU to test", "the deep tests examine GPUs only");
      return result_;
    }
    const std::optional<Json> gpus = ask("list", options_.device, 0, 0, kOpenSeconds);
    if (!gpus) return result_;
    for (const Json& gpu : *gpus) {
      address_ = gpu.at("address").get<std::string>();
      name_ = gpu.at("name").get<std::string>();
      device_ = fmt::format("{}:{}", options_.device, result_.gpus.size());
      result_.gpus.push_back(address_ + ": " + name_);
      result_.load.emplace_back();
      test_gpu();
    }
    address_.clear();
    if (gpus->size() > 1) test_sums(static_cast<int>(gpus->size()));
    return result_;
  }

 private:
  /// Sends a request to the forked process and returns its answer. If it fails, adds a finding and returns
  /// nothing.
  std::optional<Json> ask(const std::string& what, const std::string& device, double number, double other,
                          double seconds) {
    process_.send(fmt::format("{} {} {} {:.0f}", what, device, number, other), seconds);
    while (process_.look() == IsolatedProcess::State::waiting) {
      if (sampler_) sample();
      usleep(50'000);
    }
    if (process_.look() == IsolatedProcess::State::lost) {
      lost(fmt::format("it gave no answer within {:.0f} s, or crashed its process, during the test '{}'",
                       seconds, what));
      return std::nullopt;
    }
    Json answer = Json::parse(process_.take());
    if (answer.is_object() && answer.contains("error")) {
      lost(fmt::format("{} (during the test '{}')", answer["error"].get<std::string>(), what));
      return std::nullopt;
    }
    return answer;
  }
  void lost(const std::string& what) {
    add(Level::broken, "gpu-failed", what, "training on it will fail too",
        "sudo dmesg | tail -50 shows the driver's messages; restart the machine, then run the doctor again");
  }
  void add(Level level, const char* id, std::string what, std::string cost = "", std::string fix = "") {
    result_.findings.push_back({.level = level,
                                .id = id,
                                .subject = address_,
                                .what = std::move(what),
                                .cost = std::move(cost),
                                .fix = std::move(fix)});
  }
  void test_gpu() {
    say_(fmt::format("{} {}: testing every kernel", address_, name_));
    const bool works = test_kernels();
    if (!works) return;
    say_(fmt::format("{}: copies, memory rate and matmuls", address_));
    test_copies();
    test_rates();
    say_(fmt::format("{}: its free memory, at most {:.0f} s", address_, options_.memory_seconds));
    test_memory();
    say_(fmt::format("{}: {:.0f} s of steady load", address_, options_.load_seconds));
    test_load();
  }
  /// Tests every kernel. Returns false if the GPU does not respond, in which case the other tests are
  /// skipped.
  bool test_kernels() {
    const auto found = ask("kernels", device_, options_.max_kernels, 0, kKernelSeconds);
    if (!found) return false;
    const auto& failures = found->at("failures");
    if (failures.empty())
      add(Level::ok, "kernels-right",
          fmt::format("{} kernels tested, all correct", found->at("tried").get<int>()));
    for (const auto& [kernel, what] : failures.items())
      add(Level::broken, "kernels-right",
          fmt::format("{} is wrong: {}", shortened(kernel, 100), shortened(what.get<std::string>(), 200)),
          "wrong numbers, unless Hearth's self-test detects it and uses the processor instead",
          "report it with doctor.html; another driver may be right");
    return true;
  }
  void figure(const std::string& name, double value, double predicted, const std::string& unit) {
    result_.figures.push_back(
        {.gpu = address_, .name = name, .value = value, .predicted = predicted, .unit = unit});
  }
  double link_bytes_per_second() const {
    const auto gpu = std::ranges::find(machine_.gpus, address_, &system::PciGpu::pci_address);
    if (gpu == machine_.gpus.end()) return 0;
    const system::PciLink* link = gpu->slowest_link();
    return link == nullptr ? 0 : link->best_bytes_per_second();
  }
  void test_copies() {
    const auto found = ask("copies", device_, 0, 0, kRateSeconds);
    if (!found) return;
    const double link = link_bytes_per_second();
    const double slower = std::min(found->at("to_gpu").get<double>(), found->at("to_host").get<double>());
    figure("copies to the GPU", found->at("to_gpu").get<double>() * 1e-9, link * 1e-9, "GB/s");
    figure("copies to the host", found->at("to_host").get<double>() * 1e-9, link * 1e-9, "GB/s");
    if (link > 0 && slower < kLowLink * link) {
      add(Level::warning, "copy-rate",
          fmt::format("copies run at {:.1f} GB/s of the link's {:.1f}", slower * 1e-9, link * 1e-9),
          "offloading, loading and all-reduce between GPUs take longer",
          "try another slot, without a riser; the slot's PCIe generation may be lower than reported");
    } else {
      add(Level::ok, "copy-rate", fmt::format("copies run at {:.1f} GB/s", slower * 1e-9));
    }
  }
  void test_rates() {
    const cost::Device* model = cost::find_gpu_by_driver_name(name_);
    const struct {
      const char* what;
      const char* name;
      double predicted, scale;
      const char* unit;
    } rates[] = {{"fill", "writing its memory", model ? model->bytes_per_second : 0, 1e-9, "GB/s"},
                 {"bf16", "matmul, bf16", model ? model->half_flops_per_second : 0, 1e-12, "TFLOP/s"},
                 {"f32", "matmul, float32", model ? model->full_flops_per_second : 0, 1e-12, "TFLOP/s"}};
    for (const auto& rate : rates) {
      const auto found = ask(rate.what, device_, 0, 0, kRateSeconds);
      if (!found) continue;
      const double value = found->get<double>();
      figure(rate.name, value * rate.scale, rate.predicted * rate.scale, rate.unit);
      const std::string said = fmt::format("{}: {:.1f} {}", rate.name, value * rate.scale, rate.unit);
      if (value < kLowRate * rate.predicted) {
        add(Level::warning, "gpu-rate",
            fmt::format("{} of the {:.1f} that such GPUs reach", said, rate.predicted * rate.scale),
            "training is slower than predicted",
            "hearth doctor without --deep shows what limits its clocks; close other programs that use it");
      } else {
        add(Level::ok, "gpu-rate", said);
      }
    }
  }
  void test_memory() {
    const auto found =
        ask("memory", device_, options_.memory_seconds, static_cast<double>(options_.max_memory_bytes),
            2 * options_.memory_seconds + kRateSeconds);
    if (!found) return;
    const auto wrong = found->at("wrong").get<int64_t>();
    const std::string tested =
        fmt::format("{} of free memory tested with {} patterns",
                    human_bytes(found->at("bytes").get<int64_t>()), found->at("patterns").get<int>());
    if (wrong == 0) {
      add(Level::ok, "gpu-memory", tested);
    } else {
      add(Level::broken, "gpu-memory",
          fmt::format("{}: {} words are wrong, the first at {}", tested, wrong,
                      found->at("first").get<std::string>()),
          "losses that are not finite, and silently wrong models",
          "reset memory clocks and power limit, and cool the GPU; if errors remain, it is defective");
    }
  }
  void sample() {
    if (!sampler_->look()) return;
    const std::span<const system::GpuReading> readings = sampler_->readings();
    if (readings.empty()) return;
    LoadSample sample{.seconds = process_seconds() - load_start_};
    const auto known = [](float value) {
      return value == value ? std::optional<double>(value) : std::nullopt;
    };
    sample.celsius = known(readings[0].hottest());
    sample.watts = known(readings[0].power);
    sample.megahertz = known(readings[0].clock);
    result_.load.back().push_back(sample);
  }
  void test_load() {
    sampler_ = std::make_unique<system::Sampler>(system::SamplerOptions{}, say_);
    sampler_->watch({address_});
    load_start_ = process_seconds();
    const auto found =
        ask("load", device_, options_.load_seconds, 0, 2 * options_.load_seconds + kRateSeconds);
    sampler_.reset();
    if (!found || found->empty()) return;
    const auto rates = found->get<std::vector<double>>();
    std::vector<LoadSample>& load = result_.load.back();
    // Without sensor readings there is one sample for each second, with the rate only.
    if (load.size() < 2) {
      load.clear();
      for (size_t i = 0; i < rates.size(); ++i) load.push_back({.seconds = static_cast<double>(i)});
    }
    for (LoadSample& sample : load)
      sample.teraflops =
          rates[std::min(rates.size() - 1, static_cast<size_t>(std::max(0.0, sample.seconds)))] * 1e-12;
    judge_load(rates, load);
  }
  void judge_load(const std::vector<double>& rates, const std::vector<LoadSample>& load) {
    double hottest = 0;
    for (const LoadSample& sample : load) hottest = std::max(hottest, sample.celsius.value_or(0));
    const std::string heat = hottest > 0 ? fmt::format(", {:.0f} C at most", hottest) : "";
    const size_t quarter = std::max<size_t>(1, rates.size() / 4);
    const double first = *std::max_element(rates.begin(), rates.begin() + static_cast<ptrdiff_t>(quarter));
    const double last = *std::max_element(rates.end() - static_cast<ptrdiff_t>(quarter), rates.end());
    if (last < kSlower * first) {
      add(Level::warning, "steady-load",
          fmt::format("under load it slows down from {:.1f} to {:.1f} TFLOP/s{}", first * 1e-12, last * 1e-12,
                      heat),
          "long runs are slower than short ones",
          "clean out dust, better air in the case, a steeper fan curve; thermal.limit keeps it cooler by "
          "gaps between steps");
    } else {
      add(Level::ok, "steady-load",
          fmt::format("{:.1f} TFLOP/s for {} s{}", last * 1e-12, rates.size(), heat));
    }
  }
  void test_sums(int size) {
    say_(fmt::format("all-reduce of {} GPUs", size));
    IsolatedProcess group([this, size](std::string_view) { return test_all_reduce(options_.device, size); });
    const std::optional<std::string> fault = group.ask("", kRateSeconds);
    if (fault && fault->empty()) {
      add(Level::ok, "sums", fmt::format("the all-reduce of {} GPUs over host memory is correct", size));
    } else {
      add(Level::broken, "sums", fault ? *fault : "the all-reduce of several GPUs gave no answer",
          "devices=2 does not work", "hearth doctor names links with errors; try each GPU alone");
    }
  }

  const system::Machine& machine_;
  const DeepOptions& options_;
  const std::function<void(const std::string&)>& say_;
  IsolatedProcess process_;
  std::unique_ptr<system::Sampler> sampler_;
  double load_start_ = 0;
  std::string address_, name_, device_;
  DeepResult result_;
};

}  // namespace

DeepResult examine_deep(const system::Machine& machine, const DeepOptions& options,
                        const std::function<void(const std::string&)>& say) {
  return DeepTester(machine, options, say).run();
}

}  // namespace hearth::doctor
