// A code object of an AMD GPU: the ELF that hipcc makes for one target, laid out in memory as the loader
// would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace machine_code {

/// What the GPU would not do, or not always do alike: says kernel, address and instruction.
struct Fault {
  std::string what;
};

struct Argument {
  int offset = 0, size = 0;
  std::string kind;  ///< as the metadata names it: by_value, global_buffer, hidden_block_count_x...
  std::string name;  ///< where the metadata has it
};

class CodeObject;
/// From the kernel's descriptor and metadata (LLVM's AMDGPU usage document, code object version 4 and 5).
struct Kernel {
  const CodeObject* object = nullptr;
  std::string name;
  std::vector<Argument> arguments;
  uint64_t entry = 0, code_bytes = 0;
  uint32_t argument_bytes = 0, lds_bytes = 0, scratch_bytes = 0, rsrc1 = 0, rsrc2 = 0;
  uint16_t properties = 0;
  uint32_t max_threads = 0;  ///< of a block
};

/// Instructions of a kernel.
struct Listing {
  std::string executed;  ///< a digit per instruction, in order: 1 if it has been executed, otherwise 0
  std::set<std::string> unknown;  ///< messages of decode() about instructions that the emulator lacks
};

struct Instruction;
class CodeObject {
 public:
  /// Throws Fault on anything else than an AMD code object for gfx11 or gfx12 without relocations.
  CodeObject(const std::byte* elf, size_t bytes);
  ~CodeObject();
  CodeObject(const CodeObject&) = delete;
  CodeObject& operator=(const CodeObject&) = delete;

  int generation() const { return generation_; }  ///< 11 or 12
  const std::map<std::string, Kernel>& kernels() const { return kernels_; }
  bool contains(uint64_t address, uint64_t bytes) const {
    return address >= base_ && address + bytes <= base_ + bytes_;
  }
  /// The instruction at an address of the code, decoded once. Throws Fault where there is none.
  const Instruction& at(uint64_t address) const;
  Listing listing(const Kernel& kernel) const;

 private:
  int length_at(uint64_t address, std::set<std::string>& unknown) const;

  int generation_ = 11;
  uint64_t base_ = 0, bytes_ = 0;
  std::map<std::string, Kernel> kernels_;
  mutable std::vector<std::unique_ptr<Instruction>> decoded_;
};

std::string hex(uint64_t x);

}  // namespace machine_code
