#include "cli/errors.h"

#include <cstdio>
#include <exception>
#include <filesystem>

#include "backend/gpu/device.h"
#include "base/error.h"
#include "comm/transport.h"

namespace hearth::cli {

int exit_status_of(FunctionRef<int()> work) {
  try {
    return work();
  } catch (const UserError& error) {
    std::fprintf(stderr, "hearth: %s\n", error.what());
    return 2;
  } catch (const std::filesystem::filesystem_error& error) {
    std::fprintf(stderr, "hearth: cannot use '%s': %s\n", error.path1().c_str(),
                 error.code().message().c_str());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "hearth: this machine has not enough memory for that; try a smaller train.batch\n");
    return 2;
  } catch (const gpu::DeviceError& error) {
    std::fprintf(stderr,
                 "hearth: the card failed: %s; the run goes on from its last checkpoint with --resume\n",
                 error.what());
    return 71;
  } catch (const comm::CommError& error) {
    std::fprintf(stderr, "hearth: %s\n", error.what());
    return 69;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hearth: internal error, please report it with the command you typed:\n%s\n",
                 error.what());
    return 70;
  }
}

}  // namespace hearth::cli
