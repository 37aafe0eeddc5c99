#pragma once

/// Compiles a function once per instruction set; the best version is chosen at load time. Needs g++ on x86-64
/// without sanitizers (their runtimes start too late for the resolver); other builds use the baseline.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define HEARTH_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HEARTH_CLONES
#endif
