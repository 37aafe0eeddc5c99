#include "doctor/program.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "backend/gpu/modules.h"

namespace hearth::doctor {
namespace {

using Json = nlohmann::json;

constexpr double kSeconds = 60;

std::string answer(std::string_view) {
  Json json = {{"runtimes", Json::array()}, {"devices", Json::array()}};
  for (const gpu::Runtime& runtime : gpu::runtimes())
    json["runtimes"].push_back(
        {runtime.name, runtime.version, runtime.architectures, runtime.library, runtime.fault});
  for (const gpu::DeviceInfo& gpu : gpu::list_devices())
    json["devices"].push_back({gpu.name, gpu.architecture, gpu.pci_address, gpu.driver_version});
  return json.dump();
}

}  // namespace

Program read_program(IsolatedProcess& process, double seconds) {
  const std::optional<std::string> text = process.ask("", seconds);
  if (!text)
    return {.fault = fmt::format("the GPU runtimes gave no answer within {:.0f} s, or crashed", seconds)};
  const Json json = Json::parse(*text);
  Program program;
  for (const Json& one : json.at("runtimes"))
    program.runtimes.push_back({.name = one.at(0),
                                .version = one.at(1),
                                .architectures = one.at(2),
                                .library = one.at(3),
                                .fault = one.at(4)});
  for (const Json& one : json.at("devices"))
    program.devices.push_back({.name = one.at(0),
                               .architecture = one.at(1),
                               .pci_address = one.at(2),
                               .driver_version = one.at(3)});
  return program;
}

Program query_program() {
  IsolatedProcess process(answer);
  return read_program(process, kSeconds);
}

}  // namespace hearth::doctor
